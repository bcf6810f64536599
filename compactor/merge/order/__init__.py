"""The order of all rows, made from their keys alone.

`key_merge` turns the keys of k inputs into **batches**: merged rows, each with the number of its input. A
**tournament** (`tournament`) compares the next keys of all inputs in compiled loops. The rows of a batch
wait in their inputs until their row group is cut; then `keys_in_order` takes their sort columns. `row_order`
keeps the **row order** of every output row group, which the column phase replays once for each column.
`string_ids` numbers the strings of a column across chunks, so that equal ones are compared only once.
"""

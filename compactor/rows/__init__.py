"""What becomes of rows with equal keys: row policies, tombstones, times to live.

`policy` defines the **row policy** and time to live of a table as pure values, and checks them against a
schema. A **row rule** (`flags.RowRule`) applies them in one merge: from the sort columns alone it decides
which rows stay, as **flags** on the row order.

key_rows    classifies the rows of each key: first, last, tombstone, live
flags       makes the decision, and counts dropped rows by reason
fold        applies it to one column: drops rows, or folds the values of a key into one

Merges, scans, ingests and deletes all use these functions.
"""

"""Merges k sorted fragments in a stream, column by column (the model is Datadog's Husky); knows no store
and no log.

`merge_pass.merge_fragments` is the door. A pass has four phases, which share a `context`:

1. `key_phase` merges the sort columns of all **inputs** (`inputs/`) a batch at a time into the **row order**
   (`order/`), cuts that into output **row groups** (`groups/`), and writes the key sections of the
   **outputs** (`outputs/`).
2. `column_phase` takes the columns in lexicographic order. It replays the row order on each, one output row
   group at a time; inputs only ever move forward. Threads gather, hash and encode (`tasks`).
3. `checks` compares rows and commutative row hashes of the inputs with those of the outputs.
4. `completion` writes skip indexes and footers, and completes the uploads.

If a row group turns out far too heavy, the rest of the pass only measures, and a second pass divides the row
groups that need it. There is no third pass, because the first has measured all row groups.
"""

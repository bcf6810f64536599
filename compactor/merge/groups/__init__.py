"""Output row groups: where they end, which rows they have, and how their chunks are made.

`row_groups` cuts merged rows into **row groups**, and row groups into fragments. In the column phase each
input has a current row in a current chunk: `column_cursors` takes the rows of the next row group from there,
as **pieces** that are not gathered yet (`column_pieces`). `group_work` gathers them (the loops are in
`lsm_fragment.gather`), hashes, folds and encodes them; it is pure, so that threads can work on several at a
time. `splits` notices row groups that are too
heavy in one column, and says where a second pass divides them.
"""

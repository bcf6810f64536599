"""Output row groups: where they end, which rows they have, and what becomes of these.

`row_groups` cuts merged rows into **row groups**, and row groups into fragments. In the column phase every
input is at some row of one chunk: `column_cursors` takes the rows of the next row group from there, as
**pieces** that are not gathered yet (`column_pieces`). `group_work` gathers, hashes, folds and encodes
them; it is pure, so that threads can work on several at a time. `splits` notices row groups that are too
heavy in one column, and says where a second pass divides them.
"""

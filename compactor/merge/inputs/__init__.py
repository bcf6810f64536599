"""The inputs of a merge: from a stream of bytes to decoded rows that others take.

`sources` opens the bytes of each input: one GET, a local file, or what an earlier pass has kept. `input`
reads one **input** from front to back: its keys row group by row group, then column by column. A chunk is
decoded in the merging thread or ahead of it (`decoding`). **Decoded rows** (`decoded`) are a queue in memory
or on local disk; the merge takes or borrows them from its front. `schemas` says how an input's columns become
the table's, `converted` hashes rows that change by that, and `dropped` leaves deleted rows out.
`loaded_rows` is the state of a row group whose keys are loaded: it is merged with others, or it is a
**copied row group** and goes out as it was stored (`copied`).
"""

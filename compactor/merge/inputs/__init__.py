"""The inputs of a merge: from a stream of bytes to decoded rows that others take.

`sources` opens the bytes of each input: one GET, a local file, or what an earlier pass has kept. `input`
reads one **input** from front to back: keys row group by row group (`key_reader`), then column by column
(`column_reader`). A chunk is decoded in the merging thread or ahead of it (`decoding`); `conversion`
turns it into rows of the table's schema (`schemas`): columns that were renamed, dropped or widened since, and
without deleted rows (`changed_rows`). **Decoded rows**
(`decoded`) are a queue in memory or on local disk; the merge takes or borrows them from its front.
`loaded_rows` is the state of a row group whose keys are loaded: it is merged with others, or it is a
**copied row group** and goes out as it was stored (`copied`).

Memory is a **reservation** that goes along with the data: from a block that was read, to its rows.
"""

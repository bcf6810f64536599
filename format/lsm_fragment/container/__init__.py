"""A fragment in file order: its writer, its forward reader and its random-access reader.

`writer` takes sorted batches and cuts row groups (`row_buffer`). `emitter` writes blocks in file order and
records their offsets; `spool` holds the column section until the key section is complete. `stream_reader`
reads forward without the footer; `reader` reads by the footer, and `open` opens it on a path or bytes.
`chunk` encodes a chunk, `block` decodes a block of chunks, and `block_reader` reads the next block of a
stream. The
**footer** is a `directory` and **pages** of statistics (`pages`), both binary `tables`; `footer_reader` reads
only the pages that are needed.
"""

"""A fragment in the order of its bytes: what writes it, what reads it forward, what reads it at random.

`writer` takes sorted batches and cuts row groups (`row_buffer`); `emitter` puts blocks into file order and
keeps their offsets, while `spool` holds the column section back until the key section is complete.
`stream_reader` reads from the first byte to the last without the footer; `reader` reads by the footer,
`open` opens either on a path or bytes. A `chunk` is made here and read as a `block`; `block_reader` finds
the next one in a stream. The **footer** is a `directory` of `pages` of statistics, both binary `tables`;
`footer_reader` reads the pages that are asked for.
"""

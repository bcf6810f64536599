"""Streamable row-group fragment format. `format/SPEC.md` is the byte-level contract.

writer, emitter      rows, or columns, to bytes
stream_reader        bytes from the first one on, without footer or seeking
reader               random access by the footer
blocks, footer       what a fragment is made of
encode, decode       arrays to chunks and back
ordering, keys       the order of rows: whole columns, single keys
hashing, sizes       the commutative row hash; bytes by row
schema, types        header, sort schema, Arrow types
layout, compression  bytes of prologue, blocks, trailer; zstd
"""

__version__ = "0.1.0"

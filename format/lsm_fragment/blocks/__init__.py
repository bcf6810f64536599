"""The bytes of a block: header, parts, checksums, codec (SPEC sections 2 and 3); knows no arrays.

Everything in a fragment but its prologue and trailer is a **block**: a header with the kind of the block and
its lengths, then a payload. `layout` packs and unpacks headers, prologue and trailer. A large payload has
several **parts**, each with its own checksum, so that one can be read without the others (`parts`).
`compression` converts payloads to zstd frames and back.
"""

"""The bytes of a block: header, parts, checksums, codec (SPEC sections 2 and 3); knows no arrays.

Everything in a fragment but its prologue and trailer is a **block**: a header that says what follows and
how long it is, then a payload. `layout` packs and unpacks headers, prologue and trailer. A large payload
has several **parts**, each with a checksum of its own, so that one can be read without the others
(`parts`). `compression` turns a payload into zstd frames and back.
"""

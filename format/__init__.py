"""Streamable row-group fragment format. `format/SPEC.md` is the byte-level contract."""

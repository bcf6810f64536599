"""Rows of several sources in merged order, one column and one output row group at a time.

`origins` says which source each row of the output comes from. `pieces` describes what the rows lie in:
arrays of a source, one after the other. `columns.gather` replays the origins over the pieces and returns
one array: fixed-width values, strings and codes by the loops of `native.gather`, over a `table` of the
pieces; log messages as templates and variables (`templates`); lists, maps and structs as strings of bytes
(`nested`).
"""

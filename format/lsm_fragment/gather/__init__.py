"""Rows of several sources in merged order, one column and one output row group at a time.

`origins` records the source of each output row. `pieces` describes the arrays that hold the rows: each source
has its rows in a sequence of pieces. `columns.gather` replays the origins over the pieces and returns one
array. The loops of `native.gather.rows` move fixed-width values, strings and codes over a `table` of the
pieces; log messages move as templates and variables (`templates`); lists, maps and structs as byte strings
(`nested`).
"""

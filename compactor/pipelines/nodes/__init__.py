"""The nodes of a pipeline, one module per kind.

`bound` checks a node's settings against its inputs and returns the result's schema, before anything runs.
`rows` then yields the result; `rows.rows_of` calls it for any kind. Sources, routes and outputs differ:
`source` opens files and tables, `route` divides rows among branches, `output` writes and publishes.
"""

"""The nodes of a pipeline, one module per kind.

Each module has a function `bound`, which checks a node's settings against its inputs and returns the result's
schema before anything runs, and a function `rows`, which yields the result; `rows.rows_of` calls the one of a
node's kind. Sources, routes and outputs differ:
`source` opens files and tables, `route` divides rows among branches, `output` writes and publishes.
"""

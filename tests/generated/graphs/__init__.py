"""Random graphs of pipelines over files of every kind, held against DuckDB's answer to the same graph.

`python -m tests.generated.graphs --count 5000 --processes 2`; `--seed 4711` tries one again;
`--spark 200` runs graphs in Spark stages, too.
"""

"""Runs Spark jobs whose tasks exchange rows, for pipelines and entity merges.

`task` defines what a task takes and yields, `packets` moves rows as bytes in DataFrames, `exchange`
partitions them by key range, key hash or task number, and `jobs` runs one job after another. A feed is one of
the row streams that a job's tasks give; a flow sends a feed to the tasks of a later job; a place orders rows
within a feed.
"""

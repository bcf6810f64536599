"""The Spark data source `fragments`.

`source` is the entry point that Spark instantiates; `source_options` parses the options; `read` plans
partitions and reads them, with pushed-down filters from `filters`; `write` writes fragments in tasks and
commits them on Spark's driver. `types` maps Arrow and Spark types. `origin` marks loaded columns with their
table version, by which `stale` refuses writes that would revert later commits.
"""

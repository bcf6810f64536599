"""The Spark data source `fragments`.

`source` is the entry point that Spark instantiates; `source_options` parses the options; `read` plans
partitions and reads them, with pushed-down filters from `filters`; `write` writes fragments in tasks and
commits them on Spark's driver. `stream_read` reads a table as a stream: `offsets` is what a checkpoint
stores, `versions_ahead` follows the log, `stream_plan` says what a batch reads. `types` maps Arrow and Spark
types. `origin` marks loaded columns with their table version, by which `stale` refuses writes that would
revert later commits.
"""

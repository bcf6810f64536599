"""Simulates the planner on a synthetic table, without data, to compare strategies and settings.

`simulation` advances time from event to event and calls the real planner; `fragments` makes the metadata of
flushes and merge outputs; `settings` describes the load and `result` the figures, which `plot` draws. A flush
is one ingest of a writer; a shard is an independent part of the table, of which one is simulated and the
figures multiplied.
"""

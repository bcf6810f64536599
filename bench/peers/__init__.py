"""Other engines doing the same compaction, each in a process of its own; see `bench.vs_peers`."""

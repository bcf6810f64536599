"""Other engines on the same work, each in its own process; see `bench.vs_peers`."""

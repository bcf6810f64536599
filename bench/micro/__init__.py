"""Micro-benchmarks of the parts of a merge; collected only on request."""

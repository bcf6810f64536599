"""Micro-benchmarks of what a merge is made of; collected only when asked for."""

"""Bounded flow of data through one task: memory budget, local disk, stages and what passes between them.

Knows nothing of fragments: the merge builds on it, and so will other pipelines.
"""

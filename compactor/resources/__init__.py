"""Bounds the flow of data through one task: memory budget, local disk, stages and the plan of a merge."""

"""Generators of cases: what a case does follows from one integer, its seed, and nothing else."""

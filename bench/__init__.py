"""Benchmarks and the synthetic log workload they share. Not part of the installed packages."""

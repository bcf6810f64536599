"""Random graphs that handle each row by itself, held against plain Python.

They have what DuckDB has no counterpart for, or another meaning: groups of rows, fields that no source
declares, NaN, nested values, segments of EDIFACT, X12 and HL7, and the init phase.

`python -m tests.generated.rowwise --count 5000 --processes 2`; `--seed 4711` tries one again.
"""

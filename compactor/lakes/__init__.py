"""Keeps copies of a table that other engines read: Parquet files, a Delta table, an Iceberg table.

A **piece** is what one file of the copy holds: the live rows of a fragment, or, where a row policy merges
rows of one key, the merged rows of fragments that overlap. A **lake** is a table of files that other engines
read; it says by itself which files it has, and a file's name says which piece it holds. `publish.py` compares
the pieces of a version (`pieces.py`) with the files of a lake (`plan.py`), writes those that are missing
(`file.py`), and swaps them in (`lake.py`, and a module for each kind of lake). Where readers follow a lake,
`lineage.py` tells which changes are compactions.
"""

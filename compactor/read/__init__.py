"""Reading: scans, exports, counts of templates, and verification of one snapshot.

A **scan** reads `wanted` columns of the fragments that `pruning` does not rule out. `stretches` divides
overlapping fragments into **parts**, neighbouring row groups of one fragment: a part that overlaps no
other is returned without a merge (`stored_rows`), parts that overlap are merged (`merged_rows`).
`fragment_columns` reads a fragment's columns by the table's names and types: renamed, widened, or null.

scan              yields batches in sort order; scan_tasks, scan_pieces divide it for parallel tasks
row_group_reader  reads the wanted rows of a row group: the condition's columns first
steps             runs work ahead in threads, in bounded memory, results in order; also row_groups_ahead
templated_column  evaluates conditions on templates before strings are decoded
export, verify, template_counts  use these parts to write a file, check a table, count templates
"""

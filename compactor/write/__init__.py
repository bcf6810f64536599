"""Writing: ingests, deletions, changes of columns, and dropping lost fragments. Each ends in one commit.

ingest           reads a file, conforms it to the table, sorts it, writes level-0 fragments, commits
file_schema     unites the schemas of file and table, and casts batches to the result
delete           commits the rows that match a condition
overwrite        adds rows in the place of those that match; replacing deletes them in the commit that adds
update           adds changed copies in the place of rows, as assignments compute them
upsert           appends rows to tables whose row policy lets newer rows take the place of older ones
search           finds such rows; delete_merged does if rows of a key are merged
alter            renames, drops, redacts and reorders columns in the metadata alone: names are bound to
                 stored names by compactor.table.metadata, values by read.fragment_columns and
                 merge.inputs.conversion
lost_fragments   puts damaged or missing fragments in **quarantine**, or drops them with their rows
back_pressure    slows writers down according to compaction **debt**

A commit that loses the race is prepared again on the new snapshot; see `compactor.table.commit_log`.
"""

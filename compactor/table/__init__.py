"""The table: which fragments it has, at which version, and how versions come about.

A **version** (`version`) is one file of the commit log, with the **changes** of one commit. A **snapshot**
(`snapshot`) is the table at a version: metadata and an **entry** (`entry`) for each live fragment, leases and
quarantine. A **checkpoint** (`checkpoint`) is a snapshot in one object, so that opening reads no long log.

The way through: `commit_log` commits changes by creating the next version, only if it is absent; `history`
reads snapshots, new and old; `vacuum` removes what no version needs; `repair` deals with lost files.
`stored` derives JSON, Arrow columns and checks from the declarations of entries, changes and headers;
`object_names` builds and parses all names. docs/reference/table.md is the specification.
"""

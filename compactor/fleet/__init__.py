"""Many tables in one worker, by one file.

A **fleet** is the tables that the entries of a file match. `config` reads the file into **rules** for each
entry, `times` has its windows of time and schedules, `finding` looks for the tables, `scheduler` chooses the
one whose merge begins next, and `pacing` says how often a table's log is asked for news: all of these are
pure, or ask one listing. `fleet` is the state of each table, and what the worker of `compactor.compaction`
asks in each round. `chores` runs vacuums and publications in a thread beside it.
"""

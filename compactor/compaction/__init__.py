"""Compactions: decides on them, runs them, commits them.

A spec of the planner becomes a **compaction** (`compaction`) when the **driver** (`driver`) commits a lease
for it. An **attempt** (`attempt`) is one execution; its **outcome** says what it wrote, or why it failed.
Only the driver commits, and only outcomes whose leases are still valid.

The way through: the **worker** (`worker`) asks the drivers of its tables for compactions and submits them to
an **engine** (`engine`; Spark has its own). The engine calls `attempt.run_compaction`, which makes the
merge's settings, plan and limits by `prepared`, then merges. The worker hands the outcomes back to the driver
and tells a listener (`listener`).
"""

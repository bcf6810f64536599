"""The planner: decides from a snapshot what to compact. Pure: reads no object and no clock.

A **tree** (`tree`) is a time window as the planner sees it: **sorted runs** at level 0, disjoint fragments on
the levels below. A **spec** (`spec`) proposes a merge: its inputs and its output level. A **plan** holds
specs, trivial moves and expired fragments.

The way through: `plan` makes the trees and asks a strategy, `leveled` (lazy) or `eager`, for specs; `draft`
tracks the fragments that are taken already, `limits` bounds what one task may merge. `debt` measures the
backlog, `held` finds what a quarantine holds up, `shape` how a merge will use memory. `estimate` predicts
what a compaction will cost: `cost_model` by the log, `experience` by what the table's compactions have
measured, as a `spread`.
"""

"""Runs pipelines: graphs of nodes over rows, described in YAML.

The way through: `config` loads and validates the file; `classify` decides how each node holds rows (its
form); `phases` runs a pipeline in one process by `pipeline_run`, and `on_spark` on Spark, in the stages of
`stages`. `nodes` has one module per kind of node; the algorithms stand beside it: `merging`, `sorting`, the
joins (`combining`, `merge_join`, `range_join`, `asof_join`) and the window functions. Aggregates are queries
(`aggregating`, `measures`) of the `database`, and functions of sorted values beside them (`grouped_values`,
`value_runs`).

Nouns: an edge is a node's output, named by the node or as `route.branch`; its consumers take its rows. A
document is the rows of one source file. A bad record goes to the dead letters. `work.RunContext` is what
nodes share: memory, local disk, threads and report.
"""

from compactor.files.places import serve
from compactor.stores.user_files import stored_files

serve(stored_files)  # for every process that reads or writes the files of a pipeline

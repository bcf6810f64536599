"""Merges the entities of several datasets: entities that match by the rules become one output entity.

The way through: `spec` reads the settings; `datasets` finds and reads the inputs as columns of canonical JSON
texts (`entities`, `texts`); `expressions` evaluates the rules, `matching` makes edges, `components` connects
them; `clusters` names the result, `output` compares it with the table, `fold` merges the properties of
changed clusters, and `target` commits rows and state together. `entity_merge` runs all this in one process,
`on_spark` on Spark with the functions of `tasks`.

Nouns: an edge joins two equal entities; a component is what edges connect; a cluster is a component with id
and signature; folding makes one row of it. On Spark a home is the part that keeps an entity.
"""

from compactor.files.places import serve
from compactor.stores.user_files import stored_files

serve(stored_files)  # for every process that reads files of datasets

"""The tasks of an entity merge on Spark, each a function of one part of the rows; `entities/on_spark.py`
routes rows to parts.

An entity has one number for the whole run. Its high bits are its **home**, the part that keeps all entities
with its `_id`; its low bits are its position there, by dataset and `_id`. So the number depends only on the
input, and retried attempts give the same numbers. Homes keep entities in a staging store. Tasks exchange a
short record per entity, and whole entities only to fold them.

For each value, a home sends one of its entities. So a value of a million entities costs one row per home, and
each home makes the edges among its own entities. No step collects all entities with a common
value.

The steps are one module each: `reading`, `matching`, `connecting`, `clustering`, `differing`, `folding`.
Beside them `gathering` brings whole clusters into a task, where `linking` cuts, explains and lists links;
`naming` finds ids that stay.
"""

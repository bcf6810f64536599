"""The tasks of an entity merge on Spark, each a function of one part of the rows; `entities/on_spark.py`
routes rows to parts.

An entity has one number for the whole run. Its high bits are its **home**, the part that keeps all entities
with its `_id`; its low bits are its position there, by dataset and `_id`. So the number depends only on the
input, and retried attempts give the same numbers. Homes keep entities in a staging store. Only a line per
entity travels; whole entities travel only to be folded.

For each value, a home sends only one of its entities. So a value that a million entities have costs one row
per home, and each home makes the edges of its own entities. No step collects all entities with a common
value.

The steps are one module each: `reading`, `matching`, `clustering`, `differing`, `folding`.
"""

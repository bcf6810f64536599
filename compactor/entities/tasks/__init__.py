"""The tasks of an entity merge on Spark. Each is a function of a part of the rows; `entities/on_spark.py`
sends rows to the parts that they belong to.

An entity has one number for the whole run. Its high bits are its **home**, the part that has all entities
with its `_id`; its low bits are its place there, by dataset and `_id`. So the number depends only on the rows
read, and a repeated attempt gives the same numbers. Homes keep entities in a staging place. Only a line for
each entity travels, and whole entities where they are folded.

Of entities that share a value, each home sends one. So a value that a million entities share is only as many
rows as there are homes, and each home makes the edges of its own entities. No step brings all entities that
share a value together.

The steps are one module each: `reading`, `matching`, `clustering`, `differing`, `folding`.
"""

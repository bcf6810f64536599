"""Tasks of an entity merge whose entities are in many places. Each is a function of a part of the rows;
somebody else sends rows to the parts that they belong to: `entities/on_spark.py`.

An entity has a number for the whole run: its **home**, the part that has all entities with its `_id`, above
its place there, by dataset and `_id`. So the number follows from what was read, and an attempt that is made
again gives the same ones. Homes keep entities in a staging place; what travels is a line for each, and whole
entities only where they are to be folded.

Of entities that share a value, each home tells one: so a value of a million entities is as many rows as there
are homes, and each home makes the edges of its own. No step brings all that share a value together.

The steps, a module each: `reading`, `matching`, `clustering`, `differing`, `folding`.
"""

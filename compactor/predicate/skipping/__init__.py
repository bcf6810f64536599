"""Skip indexes: a summary of a column's values in each row group, by which queries skip row groups.

`spec` says which columns of a table have one, of which kind. `summary` builds and queries one: a Bloom filter
(`bloom`) or a truncated set of values (`value_set`). `packed` stores the summaries of a fragment as one
block. A summary may have false positives, never false negatives.
"""

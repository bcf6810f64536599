"""The order of rows: which comes before which (SPEC section 6).

A **sort schema** names the columns that order rows (`sort_schema`). A **normalised key** is a string of
bytes whose order is that of rows (`normalised`); sorts and merges compare nothing else. A **bound** is a
key as a value, perhaps cut short, in footers and in the log (`bounds`); `comparator` compares bounds with
each other, `extremes` finds the least and the greatest value of a chunk.
"""

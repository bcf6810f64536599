"""The order of rows: which comes before which (SPEC section 6).

A **sort schema** names the columns that order rows (`sort_schema`). A **normalised key** is a byte string
whose order is that of the rows (`normalised`); sorts and merges compare nothing else. A **bound** is a key as
values, possibly shortened, in footers and in the log (`bounds`); `comparator` compares keys and bounds, and
`extremes` finds the least and the greatest value of a chunk.
"""

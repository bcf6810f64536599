"""Arrow arrays in the forms that are stored and moved; knows neither encodings nor keys.

A **logical** array has the type that people see, a **storage** array the plain type under which its values
are stored (`types`, `storage`). Arrays from outside come to one form first (`canonical`), so that all other
code need not ask for offsets, views or garbage under nulls; nested ones are taken apart and put together
again (`nested`). `templated` holds log messages as templates and variables, `dividing` makes them so,
`nested_bytes` holds each nested value as one string. `hashing` computes the row hash, `sizes` the bytes of
rows, `cast` and `widening` change types without changing values, `validity` finds values that a type
forbids. Everything views memory through `buffers`.
"""

"""Arrow arrays in the forms that are stored and moved; knows neither encodings nor keys.

A **logical** array has the type that users see, a **storage** array the plain type under which its values are
stored (`types`, `storage`). `canonical` normalises arrays from outside, so that all other code can ignore
offsets, views and garbage under nulls; `nested` takes nested arrays apart and rebuilds them. `templated`
holds log messages as templates and variables, and `dividing` makes such arrays. `nested_bytes` holds each
nested value as one byte string. `hashing` computes the row hash, `sizes` the bytes of rows, `cast` and
`widening` change types without changing values, `validity` finds values that a type forbids. All of them
access memory through `buffers`.
"""

"""Reports a table on one page, from its log and some footers.

`gather` builds the report of a snapshot as the plain values of `data`, with the help of `keyspace` (key
ranges as rank intervals, drawn as bars in lanes), `history` (amplification and compactions over versions),
`columns` (bytes and encodings) and `templates`. `charts` draws it with Plotly: fragments, history and
compaction runs; `page` renders the HTML file around the charts. Only `gather` reads from stores.
"""

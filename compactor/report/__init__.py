"""Reports a table on one page: gathered from its log and footers, drawn by Plotly, written as one HTML file.

data      the report as plain values, and as JSON
keyspace  key ranges as intervals of ranks, drawn as bars in lanes
history   amplification over the versions of the log, and compaction records
columns   bytes and encodings of columns
gather    builds the report of one snapshot
charts    all figures: of fragments, over time, of compactions
page      the HTML around them
"""

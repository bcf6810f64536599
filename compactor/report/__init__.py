"""A table on one page: gathered from its log and footers, drawn by Plotly, written as one HTML file.

data      what a report says, as plain values; also its JSON
keyspace  key ranges as intervals of ranks, drawn as bars in lanes
history   versions of the log: amplification over time, what became of compactions
columns   bytes and encodings
gather    all of it, from one snapshot
charts    all figures: of fragments, over time, of compactions
page      the HTML around them
"""

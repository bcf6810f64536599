"""What a merge is asked for, and the outputs that it keeps open until the end.

`contract` declares the **settings** and the **result** of a merge. All outputs are open at a time, because
column c of every output comes before column c + 1 of any: an **output fragment** (`sinks`) joins the emitter
that writes it, the **sink** that takes its bytes, and what waits for the footer: the **row numbers**, one
for each row, to which every column adds its hash (`row_numbers`), and the skip indexes (`skips`).
"""

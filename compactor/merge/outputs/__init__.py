"""What a merge is asked for, and the outputs that it keeps open until the end.

`contract` declares the **settings** and the **result** of a merge. All outputs are open at a time, because
column c of every output comes before column c + 1 of any. An **output fragment** (`sinks`) has an emitter,
the **sink** that takes its bytes, and what its footer needs: the skip indexes (`skips`), and for each row the
sum of its columns' hashes (`row_numbers`).
"""

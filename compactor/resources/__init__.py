"""Limits the memory and the local disk of one task.

Data that grows with the input carries a **reservation** (`reservation`), which grows and shrinks in the
task's **budget** (`budget`). Near the limit the budget makes stages spill, and returns freed memory
(`trimmer`).

disk, record_buffer          spill to one file; sequences that spill
fetch, near_source           read inputs ahead, or in the merging thread
upload_memory                reserves the parts of uploads
merge_plan, merge_stages     plan the memory of a merge before it begins
stage, stopwatch, cores      state stages, measure their seconds, count cores
packages                     names the extra that a missing package comes with
"""

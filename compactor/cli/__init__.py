"""The command line.

The libraries below start threads of their own as they are first used, and fail where they can't. NumPy's linear
algebra is used by no command; Arrow reads blocks that are in memory.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("ARROW_IO_THREADS", "1")

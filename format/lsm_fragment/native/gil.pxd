"""Releases the GIL around long loops. Short loops keep it: waking the thread that waits for it, and getting it back,
would take longer than the loop."""

from cpython.pystate cimport PyThreadState
from libc.stdint cimport int64_t

cdef extern from "Python.h":
    PyThreadState* PyEval_SaveThread()
    void PyEval_RestoreThread(PyThreadState* state)

cdef enum:
    LONG_LOOP = 1 << 16  # values


cdef inline PyThreadState* release_gil(int64_t values):
    """Releases the GIL if a loop over `values` values is long. The loop must not touch Python objects."""
    return PyEval_SaveThread() if values >= LONG_LOOP else NULL


cdef inline void restore_gil(PyThreadState* state):
    if state is not NULL:
        PyEval_RestoreThread(state)

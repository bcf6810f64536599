"""Lets go of the GIL around long loops. Short ones keep it, since where another thread waits for it, whoever lets go of
it has to be woken up again, which takes longer than they do."""

from cpython.pystate cimport PyThreadState
from libc.stdint cimport int64_t

cdef extern from "Python.h":
    PyThreadState* PyEval_SaveThread()
    void PyEval_RestoreThread(PyThreadState* state)

cdef enum:
    LONG_LOOP = 1 << 16  # values


cdef inline PyThreadState* let_go(int64_t values):
    """Lets go of the GIL if so many values make a long loop, which touches no objects. Take it back after."""
    return PyEval_SaveThread() if values >= LONG_LOOP else NULL


cdef inline void take_back(PyThreadState* state):
    if state is not NULL:
        PyEval_RestoreThread(state)

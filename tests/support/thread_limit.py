"""A machine that starts only some threads, as in a container whose limit of processes is reached."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

COMPILER: Final = "cc"
_SHIM: Final = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

/* The first THREADS threads begin; then there are none. */
static int begun;

typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with) {
  create *next = (create *)dlsym(RTLD_NEXT, "pthread_create");
  const char *most = getenv("THREADS");
  if (most && __atomic_fetch_add(&begun, 1, __ATOMIC_SEQ_CST) >= atoi(most)) return EAGAIN;
  return next(thread, how, run, with);
}
"""


def build_thread_limit(folder: Path) -> Path:
    """Compiles the library that limits threads into a folder. Returns its path."""
    source, library = folder / "thread_limit.c", folder / "thread_limit.so"
    source.write_text(_SHIM)
    command = [COMPILER, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def thread_limit(library: Path, threads: int) -> dict[str, str]:
    """Returns the environment of a process that can start `threads` threads."""
    return {"LD_PRELOAD": str(library), "THREADS": str(threads)}

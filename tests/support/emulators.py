"""Servers of other programs, which run beside the tests on a port of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.error import HTTPError, URLError

_START_SECONDS: Final = 60.0


@contextmanager
def emulator(
    command: Callable[[str], Sequence[str]],
    environment: Callable[[str], Mapping[str, str]] = lambda _port: {},
) -> Iterator[str]:
    """Yields the address of a server that answers; stops it at the end.

    command, environment: of the server on a port, of this machine only.
    """
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    server = subprocess.Popen(
        command(port),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment(port)},
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_answering(server, address)
        yield address
    finally:
        server.terminate()
        server.wait(30)


def _wait_until_answering(server: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=1).close()
        except HTTPError:
            return
        except (URLError, TimeoutError):  # the latter if it is slow to answer, as on a busy machine
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"{server.args!r} did not start")

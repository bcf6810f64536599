"""Serves `/metrics`, `/healthz` and `/readyz` over HTTP."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, make_wsgi_app
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import WSGITask

from compactor.errors import UsageError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

Check = Callable[[], tuple[bool, str]]

_METHODS: Final = ("GET", "HEAD")
_MAX_SECONDS: Final = 10.0
"""Maximum lifetime of a connection."""
_MAX_CONNECTIONS: Final = 16
"""Maximum concurrent connections, enough for some scrapers and probes."""
_THREADS: Final = 2
_MAX_HEADER_BYTES: Final = 16 << 10
_MAX_BODY_BYTES: Final = 1 << 10
"""Maximum request body; a GET has none."""


def metrics_app(
    registry: CollectorRegistry,
    checks: Mapping[str, Check],
    documents: Mapping[str, Callable[[], object]] | None = None,
) -> WSGIApplication:
    """Returns an app with `/metrics`, and each check at its path: 200 or 503, and a one-line reason.

    documents: what is served as JSON, by path.
    """
    documents = {} if documents is None else documents
    metrics: WSGIApplication = make_wsgi_app(registry)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] not in _METHODS:
            allow = ("Allow", ", ".join(_METHODS))
            line = f"{' and '.join(_METHODS)} only"
            return _text(start_response, HTTPStatus.METHOD_NOT_ALLOWED, line, allow)
        if path == "/metrics":
            return metrics(environ, start_response)
        if path in documents:
            line = json.dumps(documents[path](), ensure_ascii=False)
            return _text(start_response, HTTPStatus.OK, line, kind="application/json")
        if path not in checks:
            paths = ", ".join(["/metrics", *checks, *documents])
            return _text(start_response, HTTPStatus.NOT_FOUND, f"there are {paths}")
        is_well, why = checks[path]()
        status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
        return _text(start_response, status, why)

    return _with_head(app)


def _with_head(app: WSGIApplication) -> WSGIApplication:
    """Answers HEAD like GET, without a body."""

    def with_head(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "HEAD":
            return app(environ, start_response)
        begun: list[tuple[str, list[tuple[str, str]]]] = []

        def keep(
            status: str, headers: list[tuple[str, str]], *_: object
        ) -> Callable[[bytes], object]:
            begun.append((status, headers))
            return lambda _data: None

        size_bytes = sum(map(len, app({**environ, "REQUEST_METHOD": "GET"}, keep)))
        ((status, headers),) = begun
        start_response(status, [*headers, ("Content-Length", str(size_bytes))])
        return []

    return with_head


def _text(
    start_response: StartResponse,
    status: HTTPStatus,
    line: str,
    *headers: tuple[str, str],
    kind: str = "text/plain; charset=utf-8",
) -> list[bytes]:
    start_response(f"{status.value} {status.phrase}", [("Content-Type", kind), *headers])
    return [f"{line}\n".encode()]


@contextmanager
def serving(app: WSGIApplication, address: str, port: int) -> Iterator[int]:
    """Serves requests in threads during the block; yields the port, chosen by the system for 0.

    Raises `UsageError` if it cannot listen on the address.
    """
    try:
        bound = _bound(address, port)
    except OSError as error:
        raise UsageError(
            f"--metrics-port {port}: cannot listen on {address} port {port} "
            f"({error.strerror or error}): free it, or give another port or --metrics-address"
        ) from error
    except UnicodeError:
        raise UsageError(
            f"--metrics-address: {address!r} is neither an address nor a host name: use one such as 127.0.0.1"
        ) from None
    # Waitress warns of each request that has to queue.
    logging.getLogger("waitress").setLevel(logging.ERROR)
    server = _Server(app, bound)
    thread = threading.Thread(target=server.run, name="metrics", daemon=True)
    thread.start()
    try:
        yield int(server.effective_port)
    finally:
        server.end()
        thread.join()


def _bound(address: str, port: int) -> socket.socket:
    family, kind, protocol, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
    except OSError:
        bound.close()
        raise
    return bound


class _OnlyTask(WSGITask):  # type: ignore[misc]
    """The only request of its connection."""

    def start(self) -> None:
        super().start()
        self.set_close_on_finish()


class _Channel(HTTPChannel):  # type: ignore[misc]
    task_class = _OnlyTask


class _Server(TcpWSGIServer):  # type: ignore[misc]
    """A server with one I/O thread for all connections and a few request threads.

    Each connection serves one request within `_MAX_SECONDS`. Beyond the limit the oldest connection is
    closed, so that slow clients cannot lock others out.
    """

    channel_class = _Channel

    def __init__(self, app: WSGIApplication, bound: socket.socket) -> None:
        settings = Adjustments(
            threads=_THREADS,
            # At its own limit waitress would stop accepting connections.
            connection_limit=100 * _MAX_CONNECTIONS,
            max_request_header_size=_MAX_HEADER_BYTES,
            max_request_body_size=_MAX_BODY_BYTES,
            log_socket_errors=False,
            clear_untrusted_proxy_headers=True,
            ident=None,
            # select() would miss connections that were shut down while idle.
            asyncore_use_poll=True,
            sockets=[bound],
        )
        place = (bound.family, bound.type, bound.proto, bound.getsockname())
        super().__init__(app, None, True, bound, adj=settings, sockinfo=place, bind_socket=False)

    def readable(self) -> bool:
        """Shuts down late and excess connections; called by the loop at least once a second."""
        by_age = sorted(self.active_channels.values(), key=lambda channel: channel.creation_time)
        late = time.time() - _MAX_SECONDS
        for place, channel in enumerate(by_age):
            if channel.creation_time < late or place < len(by_age) - _MAX_CONNECTIONS:
                # Closing it here would free its descriptor for reuse within this iteration.
                with suppress(OSError):
                    channel.socket.shutdown(socket.SHUT_RDWR)
        return bool(super().readable())

    def end(self) -> None:
        """Closes all connections, which ends `run`; called from another thread."""
        is_pulled = threading.Event()

        def close() -> None:
            # Something else may have woken the loop, and the trigger's descriptor must not be closed, and
            # reused, before it is written to.
            is_pulled.wait()
            wasyncore.close_all(self._map)

        try:
            self.trigger.pull_trigger(close)
        finally:
            is_pulled.set()
        self.task_dispatcher.shutdown()

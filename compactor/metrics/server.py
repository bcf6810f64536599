"""`/metrics`, `/healthz` and `/readyz` over HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from compactor.errors import UsageError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

Check = Callable[[], tuple[bool, str]]

_METHODS: Final = ("GET", "HEAD")
_IDLE_SECONDS: Final = 10.0
"""A client that says nothing for so long is dropped."""
_POLL_SECONDS: Final = 0.1
"""How soon the server sees that it is to end."""


def metrics_app(registry: CollectorRegistry, checks: dict[str, Check]) -> WSGIApplication:
    """`/metrics`, and each check at its path: 200 or 503, and why in a line of text."""
    metrics: WSGIApplication = make_wsgi_app(registry)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] not in _METHODS:
            allow = ("Allow", ", ".join(_METHODS))
            line = f"{' and '.join(_METHODS)} only"
            return _text(start_response, HTTPStatus.METHOD_NOT_ALLOWED, line, allow)
        if path == "/metrics":
            return metrics(environ, start_response)
        if path not in checks:
            paths = ", ".join(["/metrics", *checks])
            return _text(start_response, HTTPStatus.NOT_FOUND, f"there are {paths}")
        is_well, why = checks[path]()
        status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
        return _text(start_response, status, why)

    return _with_head(app)


def _with_head(app: WSGIApplication) -> WSGIApplication:
    """HEAD is answered like GET, without the body."""

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
    start_response: StartResponse, status: HTTPStatus, line: str, *headers: tuple[str, str]
) -> list[bytes]:
    start_response(
        f"{status.value} {status.phrase}",
        [("Content-Type", "text/plain; charset=utf-8"), *headers],
    )
    return [f"{line}\n".encode()]


@contextmanager
def serving(app: WSGIApplication, address: str, port: int) -> Iterator[int]:
    """Answers requests in threads while the block runs; the port, which the system chooses for 0.

    Raises `UsageError` if the address can't be listened on.
    """
    try:
        server = make_server(address, port, app, _server_class(address, port), _QuietHandler)
    except OSError as error:
        raise UsageError(
            f"--metrics-port {port}: cannot listen on {address} port {port} "
            f"({error.strerror or error}): free it, or give another port or --metrics-address"
        ) from error
    thread = threading.Thread(
        target=server.serve_forever, args=(_POLL_SECONDS,), name="metrics", daemon=True
    )
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _server_class(address: str, port: int) -> type[_Server]:
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    return type("_ServerOfFamily", (_Server,), {"address_family": family})


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        # Of its base class's, without a question to a name server.
        super(WSGIServer.__base__, self).server_bind()  # type: ignore[arg-type]
        host, self.server_port = self.server_address[:2]
        self.server_name = str(host)
        self.setup_environ()


class _QuietHandler(WSGIRequestHandler):
    timeout = _IDLE_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every few seconds: nothing is said of them."""

"""A local S3 (moto) that tells what it was asked: requests are counted at the server."""

from __future__ import annotations

import io
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server


@dataclass(frozen=True, kw_only=True)
class Request:
    method: str
    bucket: str
    key: str
    query: str
    range: str | None
    if_match: str | None
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)
    """By their names in lower case."""


@dataclass(frozen=True)
class HangUp:
    """The connection is closed instead of an answer, or within it."""

    before_effect: bool = False
    """Whether the request is dropped, or carried out and only its answer lost."""
    after_body_bytes: int | None = None
    """What of the answer's body still gets through; None: not even the status line."""


Intercept = Callable[[Request], tuple[str, bytes] | HangUp | None]
"""May answer in the server's place: status line and body; None lets the request through."""


Application = Callable[[dict[str, Any], Any], Iterable[bytes]]
"""As WSGI has them."""


def delivers_twice(server: Application) -> Application:
    """Returns the server behind a proxy that sends every conditional PUT twice and passes on the second
    answer."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" in environ:
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            for started in (lambda *_: None, start_response):
                answered = list(server({**environ, "wsgi.input": io.BytesIO(body)}, started))
            return answered
        return server(environ, start_response)

    return answer


def without_conditions(server: Application) -> Application:
    """Returns the server as one that does not know `If-None-Match`."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return server(environ, start_response)

    return answer


class S3Server:
    """A context manager; `endpoint_url` while it runs."""

    def __init__(self) -> None:
        self._log: list[Request] = []
        self._lock = threading.Lock()
        self._conditional = threading.Lock()
        self.intercept: Intercept | None = None
        self.behind: Callable[[Application], Application] = lambda server: server
        """What is between it and its clients."""
        self.ahead_seconds = 0.0
        """Of its clock."""
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server: BaseWSGIServer | None = None

    @property
    def endpoint_url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_port}"

    def requests(self, method: str | None = None, prefix: str = "") -> list[Request]:
        with self._lock:
            return [r for r in self._log if method in (None, r.method) and r.key.startswith(prefix)]

    def reset(self) -> None:
        """Forgets the requests so far."""
        with self._lock:
            self._log.clear()
        self.intercept = None
        self.behind = lambda server: server
        self.ahead_seconds = 0.0

    def create_bucket(self, name: str) -> str:
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=name)
        return name

    def __enter__(self) -> Self:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)

        class Handler(WSGIRequestHandler):
            def date_time_string(_, _timestamp: float | None = None) -> str:  # noqa: N805
                return formatdate(time.time() + self.ahead_seconds, usegmt=True)

        self._server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=Handler
        )
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        return self.behind(self._answer_itself)(environ, start_response)

    def _answer_itself(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        bucket, _, key = unquote(environ["PATH_INFO"]).lstrip("/").partition("/")
        request = Request(
            method=environ["REQUEST_METHOD"],
            bucket=bucket,
            key=key,
            query=environ.get("QUERY_STRING", ""),
            range=environ.get("HTTP_RANGE"),
            if_match=environ.get("HTTP_IF_MATCH"),
            headers={
                name.removeprefix("HTTP_").replace("_", "-").lower(): value
                for name, value in environ.items()
                if name.startswith("HTTP_")
            },
        )
        with self._lock:
            self._log.append(request)
        match self.intercept(request) if self.intercept else None:
            case None if "HTTP_IF_NONE_MATCH" in environ:
                # Moto looks and writes in two steps; on S3 a conditional write is one.
                with self._conditional:
                    return list(self._app(environ, start_response))
            case None:
                answer: Iterable[bytes] = self._app(environ, start_response)
                return answer
            case HangUp() as hang_up:
                return self._cut(hang_up, environ, start_response)
            case status, body:
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                start_response(status, [("Content-Length", str(len(body)))])
                return [body]

    def _cut(
        self, hang_up: HangUp, environ: dict[str, Any], start_response: Any
    ) -> Iterator[bytes]:
        if hang_up.before_effect:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        else:
            body = b"".join(self._app(environ, start_response))
            if hang_up.after_body_bytes is not None:
                yield body[: hang_up.after_body_bytes]
        # The server would go on listening on a connection that an error left without an answer.
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionAbortedError

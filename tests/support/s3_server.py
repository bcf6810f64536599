"""A local S3 (moto) that tells what it was asked: requests are counted at the server."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server


@dataclass(frozen=True)
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


class S3Server:
    """A context manager; `endpoint_url` while it runs."""

    def __init__(self) -> None:
        self._log: list[Request] = []
        self._lock = threading.Lock()
        self._conditional = threading.Lock()
        self.intercept: Intercept | None = None
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
        """Forget the requests so far."""
        with self._lock:
            self._log.clear()
        self.intercept = None

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
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
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
        bucket, _, key = unquote(environ["PATH_INFO"]).lstrip("/").partition("/")
        request = Request(
            environ["REQUEST_METHOD"],
            bucket,
            key,
            environ.get("QUERY_STRING", ""),
            environ.get("HTTP_RANGE"),
            environ.get("HTTP_IF_MATCH"),
            {
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

"""A local S3 (moto) that counts requests at the server, and answers as tests/faults say."""

from __future__ import annotations

import dataclasses
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
from msgspec import Struct
from msgspec.structs import replace
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from tests.faults import Call, Faults


class HttpAnswer(Struct):
    status: str
    headers: list[tuple[str, str]]
    body: bytes
    sent_bytes: int | None = None
    """How much of the body arrives before the connection breaks; None: all."""


class HungUpError(Exception):
    """The server closes the connection instead of answering."""


class RefusalError(Exception):
    """The server gives another answer, without carrying the request out."""

    def __init__(self, answer: HttpAnswer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def answering(status: str, body: bytes) -> Callable[[str], RefusalError]:
    """Returns what `Refuse` of tests/faults answers at a server."""
    headers = [("Content-Length", str(len(body)))]
    return lambda _key: RefusalError(HttpAnswer(status, headers, body))


@dataclass(frozen=True, kw_only=True)
class Request(Call):
    """An HTTP request; its operation is the method."""

    method: str
    bucket: str
    key: str
    query: str
    range: str | None
    if_match: str | None
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)
    """By their names in lower case."""
    environ: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """As WSGI has it, for faults that change the request."""

    @classmethod
    def of(cls, environ: dict[str, Any]) -> Self:
        bucket, _, key = unquote(environ["PATH_INFO"]).lstrip("/").partition("/")
        return cls(
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
            environ=environ,
        )

    @property
    def operation(self) -> str:  # type: ignore[override]
        return self.method

    def dropped(self) -> HungUpError:
        return HungUpError()

    def unanswered(self) -> HungUpError:
        return HungUpError()

    def cut(self, answer: HttpAnswer, after_bytes: int) -> HttpAnswer:
        return replace(answer, sent_bytes=after_bytes)

    def damaged(self, answer: HttpAnswer, change: Callable[[Any], Any]) -> HttpAnswer:
        body = change(answer.body)
        headers = [(n, v) for n, v in answer.headers if n.lower() != "content-length"]
        return replace(answer, headers=[*headers, ("Content-Length", str(len(body)))], body=body)

    def ignore_conditions(self) -> None:
        self.environ.pop("HTTP_IF_NONE_MATCH", None)
        self.environ.pop("HTTP_IF_MATCH", None)
        self.environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None)


Guard = Callable[[Request], tuple[str, bytes] | None]
"""May refuse a request, as IAM does: status line and body; None lets it through."""


class S3Server:
    """A context manager; `endpoint_url` while it runs."""

    def __init__(self) -> None:
        self._log: list[Request] = []
        self._lock = threading.Lock()
        self._conditional = threading.Lock()
        self.faults = Faults()
        self.guard: Guard | None = None
        self.ahead_seconds = 0.0
        """How far its clock is ahead."""
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
        """Forgets the requests so far, and all faults."""
        with self._lock:
            self._log.clear()
        self.faults.clear()
        self.guard = None
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
        request = Request.of(environ)
        with self._lock:
            self._log.append(dataclasses.replace(request, environ={}))
        if self.guard is None and not self.faults:
            return self._carry_out(environ, start_response)
        sent = _body_of(environ)
        try:
            answer = self.faults.carry_out(request, lambda: self._guarded(request, sent))
        except RefusalError as refusal:
            answer = refusal.answer
        except HungUpError:
            return _hang_up(environ)
        start_response(answer.status, answer.headers)
        if answer.sent_bytes is not None:
            return _hang_up(environ, answer.body[: answer.sent_bytes])
        return [answer.body]

    def _guarded(self, request: Request, sent: bytes) -> HttpAnswer:
        refusal = self.guard(request) if self.guard else None
        if refusal is not None:
            status, body = refusal
            return HttpAnswer(status, [("Content-Length", str(len(body)))], body)
        started: list[tuple[str, list[tuple[str, str]]]] = []
        environ = {**request.environ, "wsgi.input": io.BytesIO(sent)}
        body = b"".join(self._carry_out(environ, lambda *of: started.append(of[:2])))
        return HttpAnswer(*started[-1], body)

    def _carry_out(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" in environ:
            # Moto looks and writes in two steps; on S3 a conditional write is one.
            with self._conditional:
                return list(self._app(environ, start_response))
        answer: Iterable[bytes] = self._app(environ, start_response)
        return answer


def _body_of(environ: dict[str, Any]) -> bytes:
    if environ.get("wsgi.input_terminated"):
        return bytes(environ["wsgi.input"].read())
    return bytes(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))


def _hang_up(environ: dict[str, Any], body: bytes | None = None) -> Iterator[bytes]:
    if body is not None:
        yield body
    # The server would go on listening on a connection that an error left without an answer.
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError

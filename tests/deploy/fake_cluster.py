"""As much of a Kubernetes API server as Spark's driver asks for; its pods are processes of this machine.

Does what a kubelet would to start an executor: environment, addresses, and the image's entrypoint. It checks
no rights, but writes down what was asked for, as the verbs and resources of a Role.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]

DRIVER_ADDRESS = "127.0.0.2"
EXECUTOR_ADDRESS = "127.0.0.3"
"""Two hosts as far as ports and names go: who takes the wrong one for the other reaches nobody."""

_PATH = re.compile(
    r"/api(?:s/(?P<group>[^/]+))?/v[^/]+/namespaces/(?P<namespace>[^/]+)/(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?"
)
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update"}


class FakeCluster:
    """A context manager; `url` while it runs. start: makes a process of a pod that was created."""

    def __init__(self, namespace: str, driver: str, start: Callable[[Json], subprocess.Popen]):
        self.asked: set[tuple[str, str, str]] = set()
        """Group, resource, verb."""
        self.created: list[Json] = []
        self._namespace = namespace
        self._start = start
        self._processes: dict[str, subprocess.Popen] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._pods = {driver: self._pod({"metadata": {"name": driver, "labels": {}}, "spec": {}})}
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None: ...

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}") if length else {}
                cluster._answer(self, body)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve  # noqa: N815 - the library's names

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _answer(self, handler: BaseHTTPRequestHandler, body: Json) -> None:
        address = urlsplit(handler.path)
        match = _PATH.fullmatch(address.path)
        if match is None or match["namespace"] != self._namespace:
            self._send(handler, 404, self._status(404))
            return
        query = parse_qs(address.query)
        verb = self._verb(handler.command, match["name"], query)
        self.asked.add((match["group"] or "", match["resource"], verb))
        if match["resource"] != "pods":
            self._send(handler, 404, self._status(404))
            return
        if verb == "watch":
            self._watch(handler)
            return
        with self._lock:
            self._send(handler, *self._pods_answer(verb, match["name"], query, body))

    def _watch(self, handler: BaseHTTPRequestHandler) -> None:
        """A stream without events, which Spark makes up for by asking. To a web socket it says no, whereupon
        the client takes the stream."""
        if "Upgrade" in handler.headers:
            self._send(handler, 200, {})
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.flush()
        self._stopped.wait()
        handler.close_connection = True

    def _pods_answer(
        self, verb: str, name: str | None, query: Json, body: Json
    ) -> tuple[int, Json]:
        match verb:
            case "create":
                pod = self._pod(body)
                self.created.append(body)
                self._pods[pod["metadata"]["name"]] = pod
                self._processes[pod["metadata"]["name"]] = self._start(body)
                return 201, pod
            case "get" | "patch" if name in self._pods:
                return 200, self._pods[name]
            case "list":
                self._see_ends()
                items = [pod for pod in self._pods.values() if _is_selected(pod, query)]
                return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
                             "items": items}  # fmt: skip
            case "delete" | "deletecollection":
                for one in list(self._pods):
                    if one == name or (name is None and _is_selected(self._pods[one], query)):
                        self._stop(one)
                return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        return 404, self._status(404)

    def _stop(self, name: str) -> None:
        del self._pods[name]
        if name in self._processes:
            self._processes[name].terminate()

    def _see_ends(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None and name in self._pods:
                code = process.returncode
                self._pods[name]["status"] |= {"phase": "Failed" if code else "Succeeded"}

    def _pod(self, body: Json) -> Json:
        metadata = {"uid": f"uid-of-{body['metadata']['name']}", "namespace": self._namespace,
                    "resourceVersion": "1", "creationTimestamp": "2026-11-01T00:00:00Z"}  # fmt: skip
        ready = {"type": "Ready", "status": "True"}
        status = {"phase": "Running", "podIP": EXECUTOR_ADDRESS, "conditions": [ready]}
        return {"kind": "Pod", "apiVersion": "v1", **body, "metadata": body["metadata"] | metadata,
                "status": status}  # fmt: skip

    @staticmethod
    def _verb(method: str, name: str | None, query: Json) -> str:
        if method == "GET":
            if query.get("watch") == ["true"]:
                return "watch"
            return "get" if name else "list"
        if method == "DELETE":
            return "delete" if name else "deletecollection"
        return _VERBS[method]

    @staticmethod
    def _status(code: int) -> Json:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": "NotFound",
        }

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, code: int, body: Json) -> None:
        payload = json.dumps(body).encode()
        handler.send_response(code)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(payload)))
        handler.end_headers()
        handler.wfile.write(payload)


def _is_selected(pod: Json, query: Json) -> bool:
    """By `key=value` and `key!=value`, which is what Spark asks by."""
    labels = pod["metadata"].get("labels", {})
    for term in ",".join(query.get("labelSelector", [])).split(","):
        match = re.fullmatch(r"([^=!]+)(!?)==?(.*)", term)
        if match and (labels.get(match[1]) == match[3]) is bool(match[2]):
            return False
    return True


def container_environment(pod: Json, container: Json) -> dict[str, str]:
    """What a kubelet makes of `env`, in this process's own environment."""
    fields = {"status.podIP": EXECUTOR_ADDRESS, "metadata.name": pod["metadata"]["name"]}
    environment = dict(os.environ)
    for entry in container.get("env", []):
        value = entry.get("value")
        if value is None and "fieldRef" in entry.get("valueFrom", {}):
            value = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        if value is not None:
            environment[entry["name"]] = value
    return environment

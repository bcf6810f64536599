"""Probes, and what is served beside them."""

from __future__ import annotations

import io
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from wsgiref.types import WSGIApplication
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest
from waitress import trigger

from compactor.cli import watch as watch_module
from compactor.compaction.driver import Driver, DriverSettings
from compactor.compaction.engine import InProcessEngine
from compactor.compaction.listener import Listener, Listeners
from compactor.compaction.worker import Worker
from compactor.errors import StoreUnreachableError, UsageError
from compactor.table.commit_log import CommitLog
from compactor.telemetry.metrics import server
from compactor.telemetry.metrics.health import Health
from compactor.telemetry.metrics.recorder import Recorder
from compactor.telemetry.metrics.registry import MetricsRegistry
from compactor.telemetry.metrics.server import metrics_app, serving
from tests.faults import Drop
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, log_rows
from tests.support.wording import refuses

NOT_REACHED = "1 of 1 table is not reached: the log says which and why"
"""Neither bucket nor endpoint: whoever gets to the port may ask."""


class Hands:
    """A clock and a signal, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.is_draining = False


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def driver() -> Driver:
    return Driver(CommitLog(MemoryStore()), DriverSettings())


@pytest.fixture
def health(hands: Hands, driver: Driver) -> Health:
    return Health(
        [driver.url],
        stall_seconds=60,
        is_draining=lambda: hands.is_draining,
        monotonic=lambda: hands.seconds,
    )


def test_a_worker_lives_as_long_as_its_loop_goes_round(health: Health, hands: Hands) -> None:
    assert health.live() == (True, "ok")
    hands.seconds += 60
    assert health.live() == (True, "ok")
    hands.seconds += 1
    assert health.live() == (False, "no turn of the loop for 61 s (limit 60 s)")
    health.turned()
    assert health.live() == (True, "ok")


def test_it_is_ready_once_the_engine_runs_and_all_tables_are_reached_until_it_drains(
    health: Health, hands: Hands, driver: Driver
) -> None:
    assert health.ready() == (False, "starting: the engine does not run yet")
    health.started()
    assert health.ready() == (False, NOT_REACHED)
    health.looked(driver)
    assert health.ready() == (True, "ok")
    health.failed(driver, StoreUnreachableError("http://u:secret@host: no answer"), 1.0)
    assert health.ready() == (False, NOT_REACHED)
    health.looked(driver)
    assert health.ready() == (True, "ok")
    hands.is_draining = True
    assert health.ready() == (False, "draining: no new compaction begins")
    assert health.live() == (True, "ok")


class StopAfter:
    """An event that is set after so many questions, without waiting."""

    def __init__(self, turns: int) -> None:
        self._left = turns

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0

    def wait(self, seconds: float) -> None: ...


def watch(driver: Driver, health: Health, turns: int) -> None:
    worker = Worker([driver], InProcessEngine(), listener=Listeners([health]))
    worker.run(StopAfter(turns), poll_seconds=0, drain_seconds=0)  # type: ignore[arg-type]


def test_a_table_that_is_not_there_yet_is_reached(health: Health, driver: Driver) -> None:
    health.started()
    watch(driver, health, 1)
    assert health.ready() == (True, "ok")


def test_a_store_that_fails_is_not_reached_until_it_answers(hands: Hands) -> None:
    store = MemoryStore()
    append_table(store, log_rows(10, 1), "service,ts:desc")
    driver = Driver(CommitLog(store), DriverSettings())
    health = Health(
        [driver.url], stall_seconds=60, is_draining=lambda: False, monotonic=lambda: hands.seconds
    )
    health.started()
    hands.seconds += 1_000
    store.faults.add(Drop())
    watch(driver, health, 1)
    assert health.ready() == (False, NOT_REACHED)
    assert health.live() == (True, "ok")  # it goes round, and tries again later
    store.faults.clear()
    watch(driver, health, 1)
    assert health.ready() == (True, "ok")


class Waits(Listener):
    """How long the worker is going to wait after each failure."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def failed(self, driver: Driver, error: Exception, retry_seconds: float) -> None:
        self.seconds.append(retry_seconds)


class Sleepless:
    """A clock that goes on by a minute whenever it is asked."""

    def __init__(self) -> None:
        self._now_ms = 1_700_000_000_000

    def now_unix_ms(self) -> int:
        self._now_ms += 60_000
        return self._now_ms

    def sleep(self, seconds: float) -> None: ...


def test_a_store_that_stays_away_is_asked_less_and_less_often() -> None:
    store = MemoryStore()
    append_table(store, log_rows(10, 1), "service,ts:desc")
    store.faults.add(Drop())
    driver, waits = Driver(CommitLog(store), DriverSettings()), Waits()
    worker = Worker([driver], InProcessEngine(), clock=Sleepless(), listener=waits)
    worker.run(StopAfter(6), poll_seconds=0, drain_seconds=0)  # type: ignore[arg-type]
    assert len(waits.seconds) == 6
    for failures, seconds in enumerate(waits.seconds):  # doubling, with jitter
        assert 0.25 * 2**failures <= seconds <= 0.5 * 2**failures
    store.faults.clear()
    worker.run(StopAfter(1), poll_seconds=0, drain_seconds=0)  # type: ignore[arg-type]
    store.faults.add(Drop())
    worker.run(StopAfter(1), poll_seconds=0, drain_seconds=0)  # type: ignore[arg-type]
    assert waits.seconds[-1] <= 0.5


def asked(app: WSGIApplication, path: str, method: str = "GET") -> tuple[str, str]:
    """Status and body, of an app that keeps to WSGI."""
    environ: dict[str, object] = {}
    setup_testing_defaults(environ)
    environ |= {
        "PATH_INFO": path,
        "REQUEST_METHOD": method,
        "wsgi.input": io.BytesIO(),
        "QUERY_STRING": "",
    }
    statuses: list[str] = []

    def start_response(
        status: str, headers: object, exc_info: object = None
    ) -> Callable[..., None]:
        statuses.append(status)
        return lambda _data: None

    body = validator(app)(environ, start_response)
    try:
        return statuses[0], b"".join(body).decode()
    finally:
        body.close()  # type: ignore[attr-defined]


def test_each_path_says_what_it_has_to_say(registry: MetricsRegistry, recorder: Recorder) -> None:
    recorder.begin_compactions("/t", 64)
    wells = iter([(True, "ok"), (False, "draining")])
    app = metrics_app(registry.prometheus, {"/readyz": lambda: next(wells)})
    assert asked(app, "/readyz") == ("200 OK", "ok\n")
    assert asked(app, "/readyz") == ("503 Service Unavailable", "draining\n")
    status, body = asked(app, "/metrics")
    assert status == "200 OK"
    assert 'compactor_memory_limit_bytes{table="/t"} 64.0' in body.splitlines()
    assert asked(app, "/") == ("404 Not Found", "there are /metrics, /readyz\n")
    assert asked(app, "/metrics", "POST") == ("405 Method Not Allowed", "GET and HEAD only\n")
    assert asked(app, "/metrics", "HEAD") == ("200 OK", "")
    assert asked(app, "/", "HEAD") == ("404 Not Found", "")


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_it_is_served_over_http_while_the_block_runs(
    registry: MetricsRegistry, address: str
) -> None:
    app = metrics_app(registry.prometheus, {"/healthz": lambda: (True, "ok")})
    with serving(app, address, 0) as port:
        url = f"http://127.0.0.1:{port}/"
        if address == "localhost":
            url = f"http://localhost:{port}/"
        with urllib.request.urlopen(url + "healthz", timeout=10) as answer:
            assert answer.read() == b"ok\n"
        head = urllib.request.Request(url + "healthz", method="HEAD")
        with urllib.request.urlopen(head, timeout=10) as answer:
            assert answer.headers["Content-Length"] == "3"
        with urllib.request.urlopen(url + "metrics", timeout=10) as answer:
            assert b"compactor_build_info{" in answer.read()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url + "healthz", timeout=10)


def test_a_loop_that_was_woken_by_something_else_ends_as_well(
    registry: MetricsRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the thread that ends it has written to the trigger."""
    app = metrics_app(registry.prometheus, {})
    pull = trigger.trigger._physical_pull
    woken: list[int] = []

    def late(self: trigger.trigger) -> None:
        pull(self)
        if threading.current_thread() is threading.main_thread():
            woken.append(1)
            while self.thunks and len(woken) < 20:
                time.sleep(0.01)
                woken.append(1)
            pull(self)

    monkeypatch.setattr(trigger.trigger, "_physical_pull", late)
    with serving(app, "127.0.0.1", 0):
        pass
    assert woken


def connected(port: int, sent: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    client.sendall(sent)
    return client


def test_slow_clients_take_neither_threads_nor_the_place_of_others(
    registry: MetricsRegistry,
) -> None:
    app = metrics_app(registry.prometheus, {"/healthz": lambda: (True, "ok")})
    with serving(app, "127.0.0.1", 0) as port, ExitStack() as stack:
        before = set(threading.enumerate())
        slow = [
            stack.enter_context(connected(port, b"GET /healthz HTTP/1.1\r\nHost:"))
            for _ in range(5 * server._MAX_CONNECTIONS)
        ]
        with connected(port, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n") as client:
            answer = client.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\nok\n")
        assert set(threading.enumerate()) <= before
        # All but the youngest were dropped for those that came later.
        for client in slow[: -server._MAX_CONNECTIONS]:
            assert is_dropped(client)
        slow[-1].sendall(b" a\r\n\r\n")
        assert slow[-1].recv(15) == b"HTTP/1.1 200 OK"


def is_dropped(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_client_that_says_a_little_now_and_then_is_dropped_all_the_same(
    registry: MetricsRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MAX_SECONDS", 0.5)
    app = metrics_app(registry.prometheus, {})
    with serving(app, "127.0.0.1", 0) as port, connected(port, b"GET / HTTP/1.1\r\n") as client:
        client.settimeout(0.05)
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            while True:
                client.sendall(b"a: b\r\n")
                with suppress(TimeoutError):
                    assert is_dropped(client)
                    client.sendall(b"a: b\r\n")


def test_clients_that_go_away_or_say_nonsense_leave_no_trace(
    registry: MetricsRegistry, capfd: pytest.CaptureFixture[str]
) -> None:
    app = metrics_app(registry.prometheus, {"/healthz": lambda: (True, "ok")})
    with serving(app, "127.0.0.1", 0) as port:
        for sent in (
            b"GET /metrics HTTP/1.1\r\n\r\n" * 50,
            b"GET /metr",
            b"",
            b"\x16\x03\x01\x00\xff",
        ):
            with connected(port, sent) as client:  # gone without a word: a reset
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for request, status in (
            (b"nonsense\r\n\r\n", b"400"),
            (b"GET / HTTP/1.1\r\nX: " + b"a" * (32 << 10) + b"\r\n\r\n", b"431"),
            (b"POST /metrics HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", b"413"),
        ):
            with connected(port, request) as client:
                assert client.recv(12).split()[1] == status
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=20) as answer:
            assert answer.read() == b"ok\n"
            assert answer.headers["Connection"] == "close"
            assert answer.headers["Server"] is None
    assert capfd.readouterr() == ("", "")


def test_only_this_machine_reaches_the_port_unless_the_call_says_otherwise() -> None:
    (address,) = [o for o in watch_module.watch_command.params if o.name == "metrics_address"]
    assert address.default == "127.0.0.1"


def test_a_port_in_use_and_an_address_of_others_are_refused_in_one_line(
    registry: MetricsRegistry,
) -> None:
    app = metrics_app(registry.prometheus, {})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with refuses(UsageError, port):
            serving(app, "127.0.0.1", port).__enter__()
    with refuses(UsageError):
        serving(app, "192.0.2.1", 0).__enter__()
    with refuses(UsageError):
        serving(app, "no.such.host.invalid", 0).__enter__()
    with refuses(UsageError):
        serving(app, "no..host", 0).__enter__()

"""The constant vocabulary of the fleet's messages: users, addresses, paths, urls, stack traces.

Pools are ordered by descending frequency; `Parameters` draws from them with a 1 / rank skew.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa

from bench.fleet import WORLD_SEED, fleet

_WORDS: Final[dict[str, str]] = {
    "svcport": "8080 8443 9090 50051 8041 7337 6379 5432 3000",
    "fsop": "open getfileinfo listStatus create rename delete mkdirs setTimes",
    "sparkop": "collect count save show map reduceByKey foreachPartition treeAggregate",
    "rpc": "Get List Reserve Commit Cancel Refresh Lookup BatchGet",
    "vmstate": "Started Stopped Paused Resumed spawning deleting powering-off None",
    "orderstate": "PLACED PAID PICKED PACKED SHIPPED DELIVERED RETURNED CANCELLED",
    "unit": "nginx node-exporter fluent-bit checkout cart catalog search payments billing shipping"
    " redis cert-renew logrotate apt-daily ingress-nginx image-resizer inventory",
    "topic": "orders.v2 clicks payments.events inventory.delta audit-log sessions mail.outbox",
    "table": "orders order_lines customers carts payments stock_levels sessions shipments refunds",
    "region": "eu-west-1 us-east-1 us-east-2 ap-south-1 eu-central-1",
    "pamsvc": "sshd sudo cron su login",
    "extname": "api.stripe.example. telemetry.example.net. sqs.us-east-1.example.com."
    " registry.example.io. ntp.pool.example.org.",
    "class": "CartService OrderService PaymentGateway StockLedger PriceEngine SessionFilter"
    " ShuffleReader BlockFetcher TaskRunner LeaseManager ConnectionPool RequestRouter",
    "exc": "java.io.IOException java.net.SocketTimeoutException java.net.ConnectException"
    " java.io.EOFException java.lang.IllegalStateException java.lang.NullPointerException"
    " java.util.concurrent.TimeoutException java.nio.channels.ClosedChannelException"
    " org.example.rpc.RemoteException org.example.store.LeaseExpiredException"
    " java.lang.OutOfMemoryError java.sql.SQLTransientConnectionException",
}

# Parts of the generated users, paths and urls.
_PARTS: Final[dict[str, str]] = {
    "user": "root admin oracle postgres test guest hdfs yarn deploy ubuntu git jenkins etl",
    "syllable": "an ber chi dro el fu gor hel in ja ka lo mi no os pe qi ra sa tu",
    "root": "/user/hive/warehouse /data/raw/events /tmp/staging /var/lib/agent /srv/export",
    "folder": "sales clicks sessions daily hourly delta v1 v2 part rollup index cache",
    "resource": "orders carts products customers images search reviews invoices static/js",
}


@cache
def pools() -> dict[str, pa.StringArray]:
    """Builds and caches the pools, in some tens of milliseconds. The most frequent value comes first."""
    rng = np.random.default_rng([WORLD_SEED, 1])
    built = {name: words.split() for name, words in _WORDS.items()}
    built["ip"] = [
        f"10.{a}.{b}.{c}" for a, b, c in rng.integers([8, 0, 2], [12, 64, 250], (500, 3))
    ]
    built["extip"] = [
        f"{a}.{b}.{c}.{d}"
        for a, b, c, d in rng.integers([11, 0, 0, 1], [223, 256, 256, 255], (6_000, 4))
    ]
    built["user"] = _users(rng)
    built["path"] = _paths(rng)
    built["url"] = _urls(rng)
    built["agent"] = _agents(rng)
    built["stack"] = [_java_stack(rng, built) for _ in range(150)]
    built["pystack"] = [_python_stack(rng, built) for _ in range(80)]
    built["hexuser"] = [rng.bytes(16).hex() for _ in range(40)]
    built["hextenant"] = [rng.bytes(16).hex() for _ in range(16)]
    built["digest"] = [rng.bytes(16).hex() for _ in range(400)]
    built["pod"] = [
        f"{rng.choice(built['unit'])}-{rng.bytes(4).hex()}-{rng.bytes(2).hex()}" for _ in range(300)
    ]
    built["peer"] = list(rng.permutation(fleet().hosts.to_pylist()))
    return {name: pa.array(values, pa.string()) for name, values in built.items()}


def _users(rng: np.random.Generator) -> list[str]:
    known, syllables = _PARTS["user"].split(), _PARTS["syllable"].split()
    made = ["".join(rng.choice(syllables, 2 + i % 3)) for i in range(150)]
    return list(dict.fromkeys(known + made))


def _paths(rng: np.random.Generator) -> list[str]:
    roots, nodes = _PARTS["root"].split(), _PARTS["folder"].split()
    return [
        f"{rng.choice(roots)}/{rng.choice(nodes)}/{rng.choice(nodes)}/dt=2026-{m:02d}-{d:02d}"
        for m, d in rng.integers([1, 1], [13, 29], (1_200, 2))
    ]


def _urls(rng: np.random.Generator) -> list[str]:
    kinds = _PARTS["resource"].split()
    plain = [f"/api/v{1 + i % 3}/{kind}" for i, kind in enumerate(kinds)]
    single = [f"/api/v2/{rng.choice(kinds)}/{n}" for n in rng.integers(1_000, 900_000, 2_500)]
    return ["/", "/healthz", "/login", *plain, *single]


def _agents(rng: np.random.Generator) -> list[str]:
    systems = (
        "Windows NT 10.0; Win64; x64",
        "Macintosh; Intel Mac OS X 10_15_7",
        "X11; Linux x86_64",
    )
    browsers = [
        f"Mozilla/5.0 ({systems[i % 3]}) AppleWebKit/537.36 (KHTML, like Gecko)"
        f" Chrome/{v}.0.0.0 Safari/537.36"
        for i, v in enumerate(rng.integers(100, 132, 24))
    ]
    return [*browsers, "curl/8.5.0", "kube-probe/1.31", "python-requests/2.32.3", "okhttp/4.12.0"]


def _java_stack(rng: np.random.Generator, words: Mapping[str, list[str]]) -> str:
    """Returns a Java stack trace of one to three causes, 0.6 to 9 KB."""
    parts = []
    for cause in range(int(rng.integers(1, 4))):
        head = (
            f"\nCaused by: {rng.choice(words['exc'])}" if cause else f"\n{rng.choice(words['exc'])}"
        )
        parts.append(f"{head}: {rng.choice(words['unit'])} is not available")
        for line in rng.integers(20, 2_400, int(rng.geometric(0.05)) % 60 + 6):
            name = rng.choice(words["class"])
            package = f"org.example.{rng.choice(words['table'])}.{rng.choice(words['fsop'])}"
            call = rng.choice(words["sparkop"])
            parts.append(f"\tat {package}.{name}.{call}({name}.java:{line})")
        parts.append(f"\t... {int(rng.integers(3, 40))} more")
    return "\n".join(parts)


def _python_stack(rng: np.random.Generator, words: Mapping[str, list[str]]) -> str:
    """Returns a Python traceback of 5 to 25 frames, 0.5 to 3 KB."""
    parts = ["\nTraceback (most recent call last):"]
    for line in rng.integers(10, 900, int(rng.integers(5, 26))):
        module, call = rng.choice(words["table"]), rng.choice(words["fsop"])
        parts.append(f'  File "/srv/app/{module}/handlers.py", line {line}, in {call}')
        parts.append(f"    return self.{rng.choice(words['sparkop'])}(request, timeout={line})")
    parts.append(f"TimeoutError: {rng.choice(words['unit'])} did not answer")
    return "\n".join(parts)

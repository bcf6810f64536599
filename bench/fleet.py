"""The synthetic fleet: services, hosts, and the tags that agents attach.

The fleet is constant: all batches of all seeds come from the same machines, as uploads of many agents would.
A *placement* is one service on one host. Each row belongs to exactly one, so drawing placements draws
service, host and tags together.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

WORLD_SEED: Final = 20_170_516
HOST_COUNT: Final = 400
TAG_VARIANTS: Final = 8
"""Tag lists per placement: during a rolling deployment a few pods and versions coexist."""

# Family -> (services, median duration in microseconds, fraction of rows with a trace id).
_FAMILIES: Final[dict[str, tuple[str, int, float]]] = {
    "app": (
        "checkout cart catalog search payments inventory recommendations notifications"
        " session-store billing shipping image-resizer",
        18_000,
        0.9,
    ),
    "web": ("edge-proxy httpd-www api-gateway httpd-static", 6_000, 0.8),
    "hdfs": ("hdfs-datanode hdfs-namenode hdfs-journalnode", 2_500, 0.0),
    "host": ("sshd systemd sudo crond", 400, 0.0),
    "spark": ("spark-executor spark-driver", 90_000, 0.2),
    "openstack": (
        "nova-api nova-compute neutron-server glance-api nova-scheduler",
        45_000,
        0.6,
    ),
    "yarn": ("yarn-nodemanager yarn-resourcemanager mapreduce-history", 12_000, 0.0),
    "kafka": ("kafka-broker", 900, 0.0),
    "db": ("postgres-main postgres-replica redis-cache", 1_500, 0.3),
    "k8s": ("kubelet coredns", 700, 0.0),
    "zookeeper": ("zookeeper", 600, 0.0),
}
# Families whose log lines have a millisecond clock, as java.util.logging and log4j write.
_MILLISECOND_FAMILIES: Final = frozenset({"hdfs", "yarn", "spark", "zookeeper", "kafka"})


class Fleet(Struct, frozen=True, kw_only=True):
    """Services and hosts, each sorted by name, and the placements that combine them."""

    services: pa.StringArray
    hosts: pa.StringArray
    families: tuple[str, ...]
    service_family: npt.NDArray[np.int64]
    median_duration_us: npt.NDArray[np.int64]
    traced_share: npt.NDArray[np.float64]
    millisecond_clock: npt.NDArray[np.bool_]
    placement_service: npt.NDArray[np.int64]
    placement_host: npt.NDArray[np.int64]
    placement_weight: npt.NDArray[np.float64]
    tags: pa.ListArray
    """`TAG_VARIANTS` consecutive lists per placement."""

    def draw_placements(
        self, rows: int, rng: np.random.Generator, *, hosts: npt.NDArray[np.bool_] | None = None
    ) -> npt.NDArray[np.int64]:
        """Draws a placement for each of `rows` rows, by weight, on the chosen hosts only."""
        weight = self.placement_weight
        if hosts is not None:
            weight = np.where(hosts[self.placement_host], weight, 0.0)
        cumulative = np.cumsum(weight)
        drawn = np.searchsorted(cumulative, rng.random(rows) * cumulative[-1], side="right")
        return np.asarray(np.minimum(drawn, np.flatnonzero(weight)[-1]))


@cache
def fleet() -> Fleet:
    """Builds and caches the fleet, in a few milliseconds."""
    rng = np.random.default_rng(WORLD_SEED)
    described = sorted(
        (service, family)
        for family, (names, _, _) in _FAMILIES.items()
        for service in names.split()
    )
    services = [service for service, _ in described]
    family_names = tuple(_FAMILIES)
    family_of = [family for _, family in described]
    popularity = _zipf_shares(len(services), rng)
    hosts = _host_names(rng)
    service, host, weight = _place(popularity, rng)
    return Fleet(
        services=pa.array(services, pa.string()),
        hosts=pa.array(hosts, pa.string()),
        families=family_names,
        service_family=np.array([family_names.index(f) for f in family_of]),
        median_duration_us=np.array([_FAMILIES[f][1] for f in family_of]),
        traced_share=np.array([_FAMILIES[f][2] for f in family_of]),
        millisecond_clock=np.array([f in _MILLISECOND_FAMILIES for f in family_of]),
        placement_service=service,
        placement_host=host,
        placement_weight=weight,
        tags=pa.array(_tag_lists(services, hosts, service, host, rng), pa.list_(pa.string())),
    )


def _zipf_shares(count: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Returns weights proportional to 1 / rank, in an order unrelated to names."""
    shares = 1.0 / np.arange(1, count + 1)
    return np.asarray(rng.permutation(shares / shares.sum()))


def _host_names(rng: np.random.Generator) -> list[str]:
    zones = ("use1a", "use1b", "use1c", "euw1a", "euw1b", "aps1a")
    numbers = rng.choice(9_000, HOST_COUNT, replace=False) + 1_000
    return sorted(f"i-{zones[i % len(zones)]}-{n}.node" for i, n in enumerate(numbers))


def _place(
    popularity: npt.NDArray[np.float64], rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Assigns services to hosts: popular services run on many hosts, and every host runs at least one."""
    count = len(popularity)
    pairs = {(int(rng.choice(count, p=popularity)), host) for host in range(HOST_COUNT)}
    for service, share in enumerate(popularity):
        spread = min(HOST_COUNT, max(3, int(share * 2 * HOST_COUNT)))
        pairs.update((service, int(h)) for h in rng.choice(HOST_COUNT, spread, replace=False))
    placed = np.array(sorted(pairs))
    services, hosts = placed[:, 0], placed[:, 1]
    load = rng.lognormal(0.0, 0.8, len(placed))
    total = np.bincount(services, load, minlength=count)
    return services, hosts, popularity[services] * load / total[services]


def _tag_lists(
    services: list[str],
    hosts: list[str],
    placement_service: npt.NDArray[np.int64],
    placement_host: npt.NDArray[np.int64],
    rng: np.random.Generator,
) -> list[list[str]]:
    teams = ("core", "data", "infra", "growth", "sre")
    lists = []
    for s, h in zip(placement_service, placement_host, strict=True):
        zone = hosts[h].split("-")[1]
        common = [
            f"team:{teams[s % len(teams)]}",
            f"zone:{zone}",
            f"host_group:{zone[:-1]}-{h % 8}",
        ]
        for variant in range(TAG_VARIANTS):
            pod = rng.bytes(5).hex()
            tags = [
                "env:staging" if h % 11 == 0 else "env:prod",
                f"version:2.{s % 9}.{variant // 3}",
                f"pod:{services[s]}-{pod[:5]}-{pod[5:]}",
            ]
            lists.append(tags + common[: 1 + (s + variant) % 3])
    return lists

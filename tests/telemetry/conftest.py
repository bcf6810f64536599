"""Metrics of a table's compactions, and what they are held against."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from compactor.table.clocks import TRUST_VARIABLE
from compactor.telemetry.metrics.recorder import Recorder
from compactor.telemetry.metrics.registry import MetricsRegistry
from tests.support.clocks import StillClock

Value = Callable[..., float | None]


@pytest.fixture(autouse=True)
def trusted_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still is far from that of any store."""
    monkeypatch.setenv(TRUST_VARIABLE, "1")


@pytest.fixture
def registry() -> MetricsRegistry:
    return MetricsRegistry()


@pytest.fixture
def recorder(registry: MetricsRegistry) -> Recorder:
    return Recorder(registry.apply, clock=StillClock())


def value_of(registry: CollectorRegistry) -> Value:
    """Called with a name without `compactor_` and labels: a sample's value, None if there is none."""

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"compactor_{name}", labels)

    return value


@pytest.fixture
def value(registry: MetricsRegistry) -> Value:
    return value_of(registry.prometheus)

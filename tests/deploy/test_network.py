"""Where the pods of each overlay may connect to, by their network policies as they are written."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from tests.deploy.manifests import NAMES, pod_templates, render

pytestmark = pytest.mark.program

Json = dict[str, Any]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

S3 = ["52.216.8.1", "2600:1fa0:8000::1"]
POD_IDENTITY = ["169.254.170.23", "fd00:ec2::23"]
NODE_METADATA = ["169.254.169.254", "fd00:ec2::254", "fd20:ce::254", "fe80::a9fe:a9fe"]
API_SERVERS = ["10.96.0.1", "fd12:3456::1"]
"""Behind the service's address, where policies look."""


def roles(overlay: str) -> dict[str, Json]:
    """Labels of our pods, by component."""
    ours = [p.metadata["labels"] for p in pod_templates(render(overlay))]
    return {
        labels["app.kubernetes.io/component"]: labels
        for labels in ours
        if labels.get("app.kubernetes.io/name") == "lsm-compactor"
    }


def may_connect(overlay: str, labels: Json, address: str, port: int, protocol: str = "TCP") -> bool:
    """To an address that is no pod's."""
    policies = [d["spec"] for d in render(overlay) if d["kind"] == "NetworkPolicy"]
    chosen = [
        policy
        for policy in policies
        if "Egress" in policy["policyTypes"]
        and policy["podSelector"].get("matchLabels", {}).items() <= labels.items()
    ]
    assert chosen, "what no policy selects may connect anywhere"
    return any(
        {"protocol": protocol, "port": port} in rule["ports"]
        and any(_holds(peer["ipBlock"], address) for peer in rule["to"] if "ipBlock" in peer)
        for policy in chosen
        for rule in policy.get("egress", [])
    )


def _holds(block: Json, text: str) -> bool:
    address = ipaddress.ip_address(text)
    return _is_in(address, block["cidr"]) and not any(
        _is_in(address, cidr) for cidr in block.get("except", [])
    )


def _is_in(address: Address, cidr: str) -> bool:
    network = ipaddress.ip_network(cidr)
    return address.version == network.version and address in network


overlays = pytest.mark.parametrize("overlay", NAMES)


@overlays
@pytest.mark.parametrize("address", S3)
def test_all_of_our_pods_reach_the_object_store_over_tls_only(overlay: str, address: str) -> None:
    for labels in roles(overlay).values():
        assert may_connect(overlay, labels, address, 443)
        assert not may_connect(overlay, labels, address, 80)
        assert not may_connect(overlay, labels, address, 443, "UDP")


@overlays
@pytest.mark.parametrize("address", POD_IDENTITY)
def test_the_agent_of_pod_identity_is_the_only_one_reached_at_port_80(
    overlay: str, address: str
) -> None:
    for labels in roles(overlay).values():
        assert may_connect(overlay, labels, address, 80)
        assert not may_connect(overlay, labels, address, 443)


@overlays
@pytest.mark.parametrize("address", NODE_METADATA)
def test_nobody_reaches_the_metadata_of_the_node(overlay: str, address: str) -> None:
    for labels in roles(overlay).values():
        assert not any(may_connect(overlay, labels, address, port) for port in (80, 443, 6443))


@overlays
@pytest.mark.parametrize("address", API_SERVERS)
def test_drivers_only_reach_the_api_servers_own_port(overlay: str, address: str) -> None:
    for component, labels in roles(overlay).items():
        assert may_connect(overlay, labels, address, 6443) is (component == "driver")


@overlays
def test_exceptions_lie_within_their_block(overlay: str) -> None:
    blocks = [
        peer["ipBlock"]
        for document in render(overlay)
        if document["kind"] == "NetworkPolicy"
        for rule in document["spec"].get("egress", [])
        for peer in rule["to"]
        if "ipBlock" in peer
    ]
    assert blocks
    for block in blocks:
        outer = ipaddress.ip_network(block["cidr"])
        for cidr in block.get("except", []):
            inner = ipaddress.ip_network(cidr)
            assert inner.version == outer.version and inner != outer
            assert _is_in(inner.network_address, block["cidr"])

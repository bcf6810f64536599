"""What the namespace's policy, and we, ask of every pod."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import kubernetes_validate

from tests.deploy.manifests import PodTemplate, bytes_of

Json = dict[str, Any]

_SECRET = re.compile(r"secret|password|token|credential|access_key|private", re.IGNORECASE)


OLDEST, NEWEST = "1.29", "1.37"
"""Versions of Kubernetes that docs/how-to/kubernetes.md promises."""


def schema_faults(document: Json, versions: Sequence[str] = (OLDEST, NEWEST)) -> list[str]:
    """Against Kubernetes' own schema, unknown fields counting as faults."""
    faults = []
    for version in versions:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            name = document["metadata"].get("name")
            faults.append(f"{document['kind']} {name}, {version}: {error.message}")
    return faults


def faults_of(pod: PodTemplate) -> list[str]:
    """In words; none if the pod may run."""
    return [f"{pod.place}: {fault}" for fault in (*_pod_faults(pod), *_all_container_faults(pod))]


def _pod_faults(pod: PodTemplate) -> list[str]:
    spec, context = pod.spec, pod.spec.get("securityContext", {})
    faults = []
    if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
        faults.append("may run as root")
    if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
        faults.append("no seccomp profile")
    if "automountServiceAccountToken" not in spec:
        faults.append("leaves open whether a token is mounted")
    if any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        faults.append("shares the host's namespaces")
    for volume in spec.get("volumes", []):
        if "hostPath" in volume:
            faults.append(f"volume {volume['name']} is the host's")
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            faults.append(f"volume {volume['name']} has no limit")
    return faults


def _all_container_faults(pod: PodTemplate) -> list[str]:
    writable = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
    disk = sum(
        bytes_of(volume["emptyDir"]["sizeLimit"])
        for volume in writable.values()
        if "emptyDir" in volume and "sizeLimit" in volume["emptyDir"]
    )
    return [
        fault
        for container in pod.containers
        for fault in _container_faults(container, disk, sized_by_spark=pod.sized_by_spark)
    ]


def _container_faults(container: Json, disk_bytes: int, *, sized_by_spark: bool) -> list[str]:
    context, faults = container.get("securityContext", {}), []
    if context.get("allowPrivilegeEscalation") is not False:
        faults.append("privileges may grow")
    if context.get("readOnlyRootFilesystem") is not True:
        faults.append("the root may be written")
    if context.get("capabilities") != {"drop": ["ALL"]}:
        faults.append("has capabilities")
    if context.get("privileged"):
        faults.append("is privileged")
    if not sized_by_spark:
        faults += _size_faults(container)
    limit = container.get("resources", {}).get("limits", {}).get("ephemeral-storage")
    if limit is None or bytes_of(limit) < disk_bytes:
        faults.append("ephemeral-storage is less than its volumes may take")
    for entry in container.get("env", []):
        if _SECRET.search(entry["name"]) and entry.get("value"):
            faults.append(f"{entry['name']} is given literally")
    return faults


def _size_faults(container: Json) -> list[str]:
    requests, limits = (
        container.get("resources", {}).get(kind, {}) for kind in ("requests", "limits")
    )
    faults = []
    if "cpu" not in requests:
        faults.append("asks for no cores")
    if "memory" not in limits or requests.get("memory") != limits["memory"]:
        faults.append("memory has no limit that is its request")
    _, _, tag = container.get("image", "").rpartition("/")[2].partition(":")
    if not re.match(r"\d", tag):
        faults.append(f"image {container.get('image')!r} has no exact version")
    return faults

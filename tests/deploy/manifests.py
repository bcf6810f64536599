"""The manifests as kubectl renders them, and what they say about pods."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import yaml
from msgspec import Struct, field

from compactor.cli.main import cli
from compactor.settings.compaction import CompactionSettings

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
OVERLAYS = KUBERNETES / "overlays"
NAMES = sorted(path.name for path in OVERLAYS.iterdir() if (path / "kustomization.yaml").exists())

Json = dict[str, Any]

_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "m": 1 << 20, "g": 1 << 30, "": 1}


@functools.cache
def _rendered(folder: Path) -> str:
    kubectl = shutil.which("kubectl")
    assert kubectl, "kubectl is missing: deploy/setup/kubectl.sh"
    done = subprocess.run(
        [kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(overlay: str) -> list[Json]:
    return render_folder(OVERLAYS / overlay)


def render_folder(folder: Path) -> list[Json]:
    return list(yaml.safe_load_all(_rendered(folder)))


def named(documents: list[Json], kind: str, name: str) -> Json:
    """The one of that kind whose name is that, or begins so, with a generated hash at its end."""
    (found,) = [
        document
        for document in documents
        if document["kind"] == kind
        and re.fullmatch(rf"{name}(-[a-z0-9]{{10}})?", document["metadata"]["name"])
    ]
    return found


class PodTemplate(Struct, frozen=True):
    """A pod that a manifest makes, and where it stands."""

    place: str
    metadata: Json
    spec: Json
    sized_by_spark: bool = False
    """Whether cores, memory, image and grace are given elsewhere, as settings of Spark."""

    @property
    def containers(self) -> list[Json]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]


def pod_templates(documents: list[Json]) -> Iterator[PodTemplate]:
    for document in documents:
        spec, name = document.get("spec", {}), document["metadata"]["name"]
        match document["kind"]:
            case "Deployment" | "StatefulSet" | "Job":
                yield PodTemplate(name, spec["template"]["metadata"], spec["template"]["spec"])
            case "CronJob":
                template = spec["jobTemplate"]["spec"]["template"]
                yield PodTemplate(name, template["metadata"], template["spec"])
            case "SparkApplication" | "ScheduledSparkApplication":
                for role in ("driver", "executor"):
                    template = spark_application(document)[role]["template"]
                    yield PodTemplate(
                        f"{name} {role}", template["metadata"], template["spec"], True
                    )
            case "ConfigMap" if "executor.yaml" in document["data"]:
                template = yaml.safe_load(document["data"]["executor.yaml"])
                yield PodTemplate(f"{name} executor", template["metadata"], template["spec"], True)


def spark_application(document: Json) -> Json:
    spec: Json = document["spec"]
    return spec["template"] if document["kind"] == "ScheduledSparkApplication" else spec


def bytes_of(quantity: str) -> int:
    """Of Kubernetes or of Spark."""
    match = re.fullmatch(r"(\d+)([A-Za-z]*)", quantity)
    assert match, quantity
    return int(match[1]) * _UNITS[match[2]]


class Call(Struct, frozen=True):
    """A `compactor` command as its own parser understands it; of options given twice the last counts."""

    command: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> CompactionSettings:
        return CompactionSettings(
            memory_limit_bytes=self.options["memory_limit_bytes"],
            spool_limit_bytes=self.options["spool_limit_bytes"],
        )

    @property
    def tasks(self) -> int:
        return int(self.options["max_tasks"])


def call_of(arguments: list[str]) -> Call | None:
    """What a container's arguments call; None if it is no command of ours. Raises for unknown options."""
    for start in ("compactor", "/opt/compactor/compactor_job.py"):
        if start in arguments:
            return parse(arguments[arguments.index(start) + 1 :])
    return None


def parse(arguments: list[str]) -> Call:
    name, *rest = arguments
    command = cli.commands[name]
    with click.Context(command, info_name=name) as context:
        options, _, _ = command.make_parser(context).parse_args(list(rest))
    return Call(name, options)


def spark_settings(text: str) -> dict[str, str]:
    """Of a properties file."""
    lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {key: value.strip() for key, value in lines}

"""The reader's own overlay in docs/how-to/kubernetes.md changes all that it says it changes."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

import pytest
import yaml

from tests.deploy.manifests import (
    KUBERNETES,
    NAMES,
    ROOT,
    Json,
    named,
    pod_templates,
    render_folder,
    spark_application,
)

pytestmark = pytest.mark.program

DOCUMENT = (ROOT / "docs/how-to/kubernetes.md").read_text()
BLOCKS = dict(re.findall(r"^```yaml\n# (\w+\.yaml)\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL))
del BLOCKS["values.yaml"]  # the chart's


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder beside which an overlay of one's own lies."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copytree(KUBERNETES, folder / "lsm-compactor/deploy/kubernetes")
    return folder


def own(checkout: Path, overlay: str, more: str = "") -> list[Json]:
    folder = Path(tempfile.mkdtemp(dir=checkout))  # another one each time: renderings are kept
    for name, text in BLOCKS.items():
        assert name != "kustomization.yaml" or "overlays/watch]" in text
        (folder / name).write_text(text.replace("overlays/watch]", f"overlays/{overlay}{more}]"))
    return render_folder(folder)


@pytest.mark.parametrize("overlay", [name for name in NAMES if name != "local"])
def test_an_overlay_of_ones_own_changes_table_image_and_role_everywhere(
    checkout: Path, overlay: str
) -> None:
    assert set(BLOCKS) == {"kustomization.yaml", "account.yaml"}
    documents = own(checkout, overlay)
    text = yaml.safe_dump_all(documents)
    assert "example-bucket" not in text
    assert "registry.example.com" not in text
    settings = named(documents, "ConfigMap", "compactor-settings")
    assert settings["data"]["TABLE"] == "s3://my-bucket/logs"
    for pod in pod_templates(documents):
        for container in pod.containers:
            names = [s["configMapRef"]["name"] for s in container["envFrom"] if "configMapRef" in s]
            assert names == [settings["metadata"]["name"]], pod.place
    for document in documents:
        if document["kind"] in ("SparkApplication", "ScheduledSparkApplication"):
            application = spark_application(document)
            assert application["image"] == "REGISTRY/lsm-compactor:0.1.0"
            assert application["arguments"][1] == "s3://my-bucket/logs"
    for name, role in (("compactor", "my-role"), ("compactor-vacuum", "my-vacuum-role")):
        account = named(documents, "ServiceAccount", name)
        arn = account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"]
        assert arn == f"arn:aws:iam::444455556666:role/{role}"


def test_another_setting_is_another_name_so_that_workers_roll(checkout: Path) -> None:
    fleet = named(own(checkout, "watch"), "StatefulSet", "compactor-watch")
    was = named(render_folder(KUBERNETES / "overlays/watch"), "StatefulSet", "compactor-watch")
    (ours,), (theirs,) = (f["spec"]["template"]["spec"]["containers"] for f in (fleet, was))
    assert ours["envFrom"] != theirs["envFrom"]


def test_monitoring_can_be_added_to_it(checkout: Path) -> None:
    more = ", ../lsm-compactor/deploy/kubernetes/components/monitoring"
    kinds = [document["kind"] for document in own(checkout, "watch", more)]
    assert kinds.count("PodMonitor") == kinds.count("PrometheusRule") == 1
    assert "StatefulSet" in kinds

"""The CronJob's own command, with Spark's real Kubernetes backend, on a stand-in for the cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
import yaml

from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from deploy.kubernetes import resources
from tests.deploy.fake_cluster import DRIVER_ADDRESS, FakeCluster, container_environment
from tests.deploy.manifests import (
    ROOT,
    PodTemplate,
    bytes_of,
    call_of,
    named,
    pod_templates,
    render,
)
from tests.deploy.security import faults_of, schema_faults
from tests.support.oracle import stable_sorted
from tests.support.tables import SORT, ingest_tables, log_rows, table_rows

Json = dict[str, Any]
DRIVER = "compactor-compact-1-abcde"
SECRET = "known-to-driver-and-executors"

pytestmark = pytest.mark.spark


class Image:
    """Where the things are here that the image has at fixed places."""

    def __init__(self, folder: Path, spark_config: dict[str, str]) -> None:
        self._places = {
            "/etc/compactor": str(folder / "etc"),
            "/opt/compactor": str(ROOT / "deploy" / "spark-submit"),
            "/etc/spark-secret": str(folder / "spark-secret"),
            "/spool": str(folder / "spool"),
        }
        (folder / "spark-secret").mkdir()
        (folder / "spark-secret" / "secret").write_text(SECRET)
        (folder / "spool").mkdir()
        (folder / "etc").mkdir()
        for name, text in spark_config.items():
            (folder / "etc" / name).write_text(self.local(text) if name == "spark.conf" else text)
        # It reaps orphans, which is no matter here; it may be missing on this machine.
        self._tini = folder / "tini"
        self._tini.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
        self._tini.chmod(0o755)
        self._log = folder / "executors.log"
        self._log.touch()

    def local(self, text: str) -> str:
        for there, here in self._places.items():
            text = text.replace(there, here)
        return text

    def environment(self, environment: dict[str, str]) -> dict[str, str]:
        java = shutil.which("java")
        assert java
        home = os.environ.get("JAVA_HOME") or str(Path(java).resolve().parents[1])
        return environment | {
            "JAVA_HOME": home,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_HOME": pyspark.__path__[0],
            "TINI": str(self._tini),
        }

    def start(self, pod: Json) -> subprocess.Popen:
        (container,) = pod["spec"]["containers"]
        with self._log.open("ab") as log:  # the process has one of its own
            return subprocess.Popen(
                [str(ROOT / "deploy/docker/entrypoint.sh"), *container["args"]],
                env=self.environment(container_environment(pod, container)),
                stdout=log,
                stderr=log,
            )


def driver_command(container: Json, image: Image, values: dict[str, str]) -> list[str]:
    arguments = container["args"]
    for name, value in values.items():
        arguments = [argument.replace(f"$({name})", value) for argument in arguments]
    arguments = [
        f"--master=k8s://{values['API']}"
        if argument.startswith("--master=")
        else image.local(argument)
        for argument in arguments
    ]
    program, *rest = arguments
    assert program == "spark-submit"
    # One executor is enough here, and nobody is told of its end but by asking.
    ours = ["spark.executor.instances=1", "spark.kubernetes.executor.apiPollingInterval=1s"]
    submit = str(Path(pyspark.__path__[0]) / "bin" / "spark-submit")
    return [
        str(ROOT / "deploy/docker/entrypoint.sh"),
        submit,
        *(f"--conf={c}" for c in ours),
        *rest,
    ]


def test_the_cron_jobs_command_compacts_on_executors_that_meet_the_namespaces_policy(
    s3_server, s3_bucket: str, tmp_path: Path
) -> None:
    url = f"s3://{s3_bucket}/t"
    store = open_store(url)
    tables = [log_rows(50, seed) for seed in range(3)]
    ingest_tables(store, tables, tmp_path)
    documents = render("cronjob")
    (driver,) = [pod for pod in pod_templates(documents) if pod.place == "compactor-compact"]
    (container,) = driver.containers
    settings = named(documents, "ConfigMap", "compactor-settings")["data"]
    image = Image(tmp_path, named(documents, "ConfigMap", "compactor-spark")["data"])

    with FakeCluster("compactor", DRIVER, image.start) as cluster:
        values = settings | {
            "TABLE": url,
            "POD_IP": DRIVER_ADDRESS,
            "POD_NAME": DRIVER,
            "API": cluster.url,
        }
        command = driver_command(container, image, values)
        command = [*command, "--strategy", "full"]
        done = subprocess.run(
            command, env=image.environment(dict(os.environ)), cwd=tmp_path, capture_output=True, text=True,
            timeout=280, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr + (tmp_path / "executors.log").read_text()
    # spark-submit puts what goes to stderr, the log, on stdout as well.
    *events, report = [json.loads(line) for line in done.stdout.splitlines()]
    assert {event["event"] for event in events} >= {"compacting", "committed"}
    assert report["rows_out"] == 150
    assert len(CommitLog(store).current().fragments) == 1
    assert table_rows(store) == stable_sorted(pa.concat_tables(tables), SORT).to_pylist()

    (role,) = [document for document in documents if document["kind"] == "Role"]
    allowed = {(group, resource, verb) for rule in role["rules"] for group in rule["apiGroups"]
               for resource in rule["resources"] for verb in rule["verbs"]}  # fmt: skip
    assert cluster.asked <= allowed
    assert ("", "pods", "create") in cluster.asked

    (pod,) = cluster.created
    assert SECRET not in json.dumps(pod), "who may list pods sees it"
    assert schema_faults(pod) == []
    assert faults_of(PodTemplate("executor", pod["metadata"], pod["spec"])) == []
    assert pod["spec"]["serviceAccountName"] == "compactor"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 120
    assert pod["metadata"]["ownerReferences"][0]["name"] == DRIVER
    (executor,) = pod["spec"]["containers"]
    call = call_of(container["args"])
    assert call is not None
    expected = resources.executor(call.settings, cores=2)
    assert bytes_of(executor["resources"]["limits"]["memory"]) == expected.memory_bytes
    assert executor["resources"]["requests"]["memory"] == executor["resources"]["limits"]["memory"]
    assert executor["resources"]["requests"]["cpu"] == str(expected.cpu)
    assert executor["image"] == settings["EXECUTOR_IMAGE"]
    assert executor["lifecycle"]["preStop"]["exec"]["command"] == ["/opt/decom.sh"]
    template = yaml.safe_load(
        named(documents, "ConfigMap", "compactor-spark")["data"]["executor.yaml"]
    )
    assert {v["name"] for v in pod["spec"]["volumes"]} == {
        v["name"] for v in template["spec"]["volumes"]
    }

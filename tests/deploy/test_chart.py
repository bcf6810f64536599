"""The Helm chart renders, fits the schemas, has the sizes of kustomize's pods, and refuses placeholders."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import boto3
import jsonschema
import pytest
import yaml
from botocore.config import Config

from compactor import __version__
from compactor.fleet import config
from compactor.fleet.config import parse_fleet
from deploy.kubernetes import resources
from deploy.kubernetes.resources import MIB
from tests.deploy.manifests import (
    KUBERNETES,
    ROOT,
    Json,
    PodTemplate,
    bytes_of,
    call_of,
    named,
    pod_templates,
    render,
    render_folder,
)
from tests.deploy.security import NEWEST, OLDEST, faults_of, schema_faults

HELM = shutil.which("helm") or shutil.which("helm", path=Path(sys.executable).parent)
pytestmark = [
    pytest.mark.program,
    pytest.mark.skipif(HELM is None, reason="helm is missing: there is no binary for this machine"),
]
CHART = KUBERNETES / "chart"
FILE = "lsm.compactor.yaml"
CUSTOM_SCHEMAS = json.loads((ROOT / "tests/deploy/custom_resources.json").read_text())
CUSTOM = tuple(CUSTOM_SCHEMAS["properties"])
MINE: Json = {
    "image": {"repository": "registry.corp/lsm-compactor"},
    "fleet": {"tables": [{"at": "s3://lake/logs"}]},
}
ALL: Json = {
    **MINE,
    "autoscaling": {"enabled": True},
    "monitoring": {"enabled": True, "pushgateway": "http://pushgateway.monitoring.svc:9091"},
    "s3": {
        "endpoint": "https://minio.storage.svc:9000",
        "addressing": "virtual",
        "ca": {"secret": "my-ca"},
        "peers": [{"namespaceSelector": {"matchLabels": {"name": "storage"}}}],
    },
    "environment": {"AZURE_STORAGE_ACCOUNT_NAME": "lake"},
}
values = pytest.mark.parametrize("mine", [MINE, ALL], ids=["least", "all"])


@functools.cache
def _helm(values: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    command = [HELM, *arguments, "--namespace", "lsm", "--values", "-"]
    return subprocess.run(command, input=values, capture_output=True, text=True, check=False)


def rendered(mine: Json, version: str = NEWEST) -> list[Json]:
    text = yaml.safe_dump(mine)
    done = _helm(text, "template", "compactor", str(CHART), "--kube-version", version)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def refusal(mine: Json) -> str:
    done = _helm(yaml.safe_dump(mine), "template", "compactor", str(CHART))
    assert done.returncode != 0
    return done.stderr


def pod_of(documents: Sequence[Json], place: str) -> PodTemplate:
    (pod,) = [pod for pod in pod_templates(list(documents)) if pod.place == place]
    return pod


def with_workers(**workers: Any) -> Json:
    return {**MINE, "workers": workers}


@values
def test_the_chart_is_without_faults_for_helms_own_check(mine: Json) -> None:
    done = _helm(yaml.safe_dump(mine), "lint", str(CHART), "--strict")
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout + done.stderr


@values
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_document_fits_kubernetes_own_schema(mine: Json, version: str) -> None:
    documents = rendered(mine, version)
    plain = [document for document in documents if document["kind"] not in CUSTOM]
    assert [fault for d in plain for fault in schema_faults(d, [version])] == []
    for document in documents:
        if document["kind"] in CUSTOM:
            schema = {**CUSTOM_SCHEMAS, "required": [document["kind"]]}
            document["metadata"]["namespace"] = "lsm"  # where helm creates it
            jsonschema.validate({document["kind"]: document}, schema)


@values
def test_every_pod_meets_the_restricted_policy_and_ours(mine: Json) -> None:
    pods = list(pod_templates(rendered(mine)))
    assert {pod.place for pod in pods} == {"compactor-watch", "compactor-vacuum"}
    assert [fault for pod in pods for fault in faults_of(pod)] == []
    assert not any(document["kind"] == "Secret" for document in rendered(mine))


@pytest.mark.parametrize(
    "workers",
    [
        {},
        {"tasks": 1, "memoryLimitMiB": 64, "spoolLimitGiB": 1},
        {"tasks": 7, "memoryLimitMiB": 1000, "spoolLimitGiB": 64, "drainSeconds": 33},
        {"memoryLimitMiB": 1_000_000, "spoolLimitGiB": 1_000_000, "drainSeconds": 1_000_000},
    ],
    ids=["defaults", "small", "odd", "large"],
)
def test_a_worker_is_sized_as_the_numbers_command_says(workers: Json) -> None:
    documents = rendered(with_workers(**workers))
    pod = pod_of(documents, "compactor-watch")
    (container,) = pod.containers
    call = call_of(container["args"])
    assert call is not None
    fleet = parse_fleet(
        named(documents, "ConfigMap", "compactor-fleet")["data"][FILE], "fleet.yaml"
    )
    settings = fleet.entries[0].compaction
    tasks = call.tasks
    spool = call.options["spool_limit_bytes"]
    settings = settings.model_copy(update={"spool_limit_bytes": bytes_of(spool.replace("iB", "i"))})
    expected = resources.local_worker(settings, tasks)
    requests, limits = (container["resources"][name] for name in ("requests", "limits"))
    assert requests["cpu"] == str(expected.cpu)
    assert bytes_of(requests["memory"]) == bytes_of(limits["memory"]) == expected.memory_bytes
    volume = pod.spec["volumes"][-1]["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert bytes_of(volume["resources"]["requests"]["storage"]) == expected.spool_bytes
    assert settings.memory_limit_bytes == workers.get("memoryLimitMiB", 512) * MIB
    drain = workers.get("drainSeconds", 120)
    assert pod.spec["terminationGracePeriodSeconds"] == resources.grace_seconds(drain)


def test_by_default_the_pods_are_those_of_kustomize_but_for_the_file_of_tables() -> None:
    ours, theirs = rendered(MINE), render("watch")
    for place in ("compactor-watch", "compactor-vacuum"):
        mine, other = (_plain(pod_of(documents, place)) for documents in (ours, theirs))
        mine["volumes"] = [volume for volume in mine["volumes"] if volume["name"] != "fleet"]
        (container,), (of_kustomize,) = mine["containers"], other["containers"]
        container["volumeMounts"] = [m for m in container["volumeMounts"] if m["name"] != "fleet"]
        for name in ("args", "image", "envFrom"):
            assert container.pop(name)
            assert of_kustomize.pop(name)
        assert mine == other
    watch, kustomized = (
        call_of(pod_of(documents, "compactor-watch").containers[0]["args"])
        for documents in (ours, theirs)
    )
    assert watch is not None
    assert kustomized is not None
    of_file = {"config", "tables", "memory_limit_bytes"}
    assert {k: v for k, v in watch.options.items() if k not in of_file} == {
        k: v for k, v in kustomized.options.items() if k not in of_file
    }


def _plain(pod: PodTemplate) -> Json:
    """The pod, with labels of a release taken out and sizes in bytes."""
    text = json.dumps(pod.spec).replace('"app.kubernetes.io/instance": "compactor", ', "")
    spec: Json = json.loads(text.replace('"1024Mi"', '"1Gi"'))
    spec["securityContext"].pop("fsGroupChangePolicy", None)
    return spec


def test_the_file_of_the_fleet_is_the_users_with_the_memory_of_the_pods() -> None:
    mine = {
        **with_workers(memoryLimitMiB=256),
        "fleet": {
            "zone": "Europe/Berlin",
            "defaults": {"priority": 3, "settings": {"level0_trigger_runs": 2}},
            "tables": [
                {"at": "s3://lake/a"},
                {"at": "s3://lake/b/*", "settings": {"retain_seconds": "7d"}, "quiet": "22:00-06:00"},
            ],
        },
    }  # fmt: skip
    text = named(rendered(mine), "ConfigMap", "compactor-fleet")["data"][FILE]
    fleet = parse_fleet(text, "fleet.yaml")
    assert [entry.at for entry in fleet.entries] == ["s3://lake/a", "s3://lake/b/*"]
    assert {entry.priority for entry in fleet.entries} == {3}
    assert dict(fleet.entries[1].properties) == {
        "level0_trigger_runs": 2,
        "memory_limit_bytes": 256 * MIB,
        "retain_seconds": 604_800.0,
    }


@pytest.mark.parametrize("place", ["compactor-watch", "compactor-vacuum"])
def test_a_private_s3_is_reached_as_the_values_say(place: str, tmp_path: Path) -> None:
    documents = rendered(ALL)
    pod = pod_of(documents, place)
    settings = named(documents, "ConfigMap", "compactor-settings")["data"]
    assert settings["AWS_ENDPOINT_URL"] == "https://minio.storage.svc:9000"
    assert settings["AZURE_STORAGE_ACCOUNT_NAME"] == "lake"
    mounts = {m["name"]: m["mountPath"] for m in pod.containers[0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    assert volumes["ca"]["secret"] == {"secretName": "my-ca"}
    assert settings["AWS_CA_BUNDLE"] == f"{mounts['ca']}/ca.crt"
    assert volumes["fleet"]["configMap"] == {"name": "compactor-fleet"}
    assert settings["AWS_CONFIG_FILE"] == f"{mounts['fleet']}/aws.conf"
    (tmp_path / "aws.conf").write_text(
        named(documents, "ConfigMap", "compactor-fleet")["data"]["aws.conf"]
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws.conf"))
        client = boto3.session.Session().client(
            "s3", endpoint_url=settings["AWS_ENDPOINT_URL"], region_name="us-east-1",
            aws_access_key_id="a", aws_secret_access_key="b", config=Config(signature_version="s3v4"),
        )  # fmt: skip
        url = client.generate_presigned_url("get_object", Params={"Bucket": "lake", "Key": "k"})
    assert url.startswith("https://lake.minio.storage.svc:9000/k?")
    policy = named(documents, "NetworkPolicy", "compactor")["spec"]
    rules = {tuple(p["port"] for p in rule["ports"]): rule["to"] for rule in policy["egress"]}
    assert rules[9000,] == ALL["s3"]["peers"]
    assert (443,) in rules
    assert (9091,) in rules


def test_without_peers_the_port_of_a_private_s3_is_open_to_all_addresses() -> None:
    documents = rendered({**MINE, "s3": {"endpoint": "http://10.0.0.7:9000"}})
    policy = named(documents, "NetworkPolicy", "compactor")["spec"]
    assert {"protocol": "TCP", "port": 9000} in policy["egress"][1]["ports"]
    assert "AWS_CA_BUNDLE" not in named(documents, "ConfigMap", "compactor-settings")["data"]


def test_monitors_alerts_and_scaling_are_those_of_kustomize() -> None:
    documents = rendered(ALL)
    theirs = [*render("watch-autoscaled"), *render_folder(KUBERNETES / "components/monitoring")]
    rules = named(documents, "PrometheusRule", "compactor")
    assert rules["spec"] == named(theirs, "PrometheusRule", "compactor")["spec"]
    monitor, other = (named(d, "PodMonitor", "compactor")["spec"] for d in (documents, theirs))
    assert monitor["podMetricsEndpoints"] == other["podMetricsEndpoints"]
    labels = pod_of(documents, "compactor-watch").metadata["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    scaled, other = (
        named(d, "ScaledObject", "compactor-watch")["spec"] for d in (documents, theirs)
    )
    (trigger,) = scaled["triggers"]
    assert 'namespace="lsm"' in trigger["metadata"]["query"]
    trigger["metadata"]["query"] = other["triggers"][0]["metadata"]["query"]
    assert scaled == other
    assert "replicas" not in named(documents, "StatefulSet", "compactor-watch")["spec"]


def test_another_environment_rolls_the_workers_and_another_table_does_not() -> None:
    def annotations(mine: Json) -> Json:
        return dict(pod_of(rendered(mine), "compactor-watch").metadata["annotations"])

    more = {**MINE, "fleet": {"tables": [{"at": "s3://lake/logs"}, {"at": "s3://lake/more"}]}}
    assert annotations(more) == annotations(MINE)
    assert annotations({**MINE, "s3": {"region": "eu-north-1"}}) != annotations(MINE)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"image": {}}, "image.repository: name the image"),
        ({"image": {"repository": "registry.example.com/lsm-compactor"}}, "is a placeholder"),
        ({"image": {"repository": "REGISTRY/lsm-compactor"}}, "is a placeholder"),
        ({"fleet": {"tables": []}}, "fleet.tables: name the tables"),
        ({"fleet": {"tables": [{"at": "s3://example-bucket/logs"}]}}, "is a placeholder"),
        (
            {"vacuum": {"serviceAccount": {"annotations": {"role": "arn:aws:iam::111122223333:role/r"}}}},
            "111122223333 is a placeholder",
        ),
        (
            {"fleet": {"tables": [{"at": "s3://a/b", "settings": {"memory_limit_bytes": "4GiB"}}]}},
            "workers.memoryLimitMiB",
        ),
        ({"fleet": {"tables": [{"at": "s3://a/b", "vacuum": {"every": "1d"}}]}}, "workers may not delete"),
        (
            {"fleet": {"tables": [{"at": "s3://a/b", "publish": {"to": "s3://c/d", "as": "delta"}}]}},
            "the image lacks the packages for it",
        ),
        ({"fleet": {"tables": [{"at": "s3://a/b", "bogus": 3}]}}, "bogus"),
        ({"fleet": {"tables": [{"at": "s3://a/b"}], "pol": "5s"}}, "pol"),
        ({"fleet": {"tables": [{"at": "s3://a/b"}], "poll": "zzz"}}, "fleet.poll"),
        ({"fleet": {"tables": [{"at": "s3://a/b"}], "poll": 0}}, "fleet.poll"),
        ({"fleet": {"tables": [{"at": "/local/dir"}]}}, "fleet.tables.0.at"),
        ({"fleet": {"tables": [{"at": "file:///local/dir"}]}}, "fleet.tables.0.at"),
        ({"fleet": {"tables": [{"at": "s3://a/b", "quiet": "at night"}]}}, "fleet.tables.0.quiet"),
        ({"fleet": {"tables": [{"at": "s3://a/b", "settings": {"level_0": 2}}]}}, "level_0"),
        ({"vacuum": {"schedule": "bogus"}}, "vacuum.schedule"),
        ({"vacuum": {"schedule": "17 3 * *"}}, "vacuum.schedule"),
        ({"workers": {"task": 3}}, "task"),
        ({"workers": {"tasks": 0}}, "tasks"),
        ({"s3": {"endpoint": "minio:9000"}}, "endpoint"),
        ({"s3": {"peers": [{"podSelector": {}}]}}, "s3.endpoint: name the server"),
        ({"s3": {"ca": {"secret": "a", "configMap": "b"}}}, "not both"),
        ({"autoscaling": {"enabled": True, "minReplicas": 7}}, "minReplicas"),
        ({"fleet": {"tables": [{"at": "s3://a/b"}], "defaults": {"vacuum": {}}}}, "workers may not delete"),
        ({"fleet": {"tables": [{"at": "s3://a/b"}], "defaults": "none"}}, "fleet.defaults"),
        ({"workers": {"tasks": None}}, "tasks is required"),
        ({"s3": {"ca": None}}, "ca is required"),
        ({"workers": {"options": ["--max-tasks=9"]}}, "the chart says --max-tasks itself"),
        ({"environment": {"AWS_REGION": "eu-north-1"}}, "AWS_REGION: the values of s3 say it"),
        ({"environment": {"A B": "c"}}, "A B"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_meant_are_refused_at_rendering(change: Json, reason: str) -> None:
    assert reason in refusal({**MINE, **change})


@pytest.mark.parametrize("schedule", ["@every 6h", "@weekly", "0  3 * * *", "17 3 * * sun"])
def test_schedules_that_kubernetes_takes_are_rendered(schedule: str) -> None:
    assert any(
        document["kind"] == "CronJob" and document["spec"]["schedule"] == schedule
        for document in rendered({**MINE, "vacuum": {"schedule": schedule}})
    )


def test_the_file_of_the_fleet_may_say_all_that_a_worker_takes() -> None:
    """The chart's schema knows the keys of the models, and no others."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    rules, file = schema["definitions"]["rules"], schema["properties"]["fleet"]
    for known, model in (
        (file, config._File),
        (file["properties"]["tables"]["items"], config._Entry),
        (rules, config._Rules),
        (rules["properties"]["publish"], config.PublishRules),
        (rules["properties"]["vacuum"], config.VacuumRules),
        (rules["properties"]["retention"], config.RetentionRules),
    ):
        assert set(known["properties"]) == {f.alias or n for n, f in model.model_fields.items()}
    assert set(rules["properties"]["settings"]["properties"]) == set(config._NAMES)
    fleet = {
        "zone": "Europe/Berlin", "poll": 5, "slowest_poll": "10m", "find_every": "90 s", "report_every": "1h",
        "defaults": {"share": 0.5, "longest_wait": 0, "retention": {"every": "2h", "between": "01:00-05:00"}},
        "tables": [
            {
                "at": "s3://lake/logs/*", "except": ["*/tmp-*"], "priority": 10,
                "quiet": ["mon-fri,sun 08:00-18:00", "22:00 - 06:00"], "settings": {"retain_seconds": "7d"},
                "publish": {"to": "s3://lake/copies/{table}", "as": "parquet", "every": "15m"},
            },
            {"at": "gs://lake/a", "vacuum": None, "publish": None},
        ],
    }  # fmt: skip
    documents = rendered({**MINE, "fleet": fleet, "vacuum": {"schedule": "*/5 1-3 * jan MON,tue"}})
    text = named(documents, "ConfigMap", "compactor-fleet")["data"][FILE]
    assert [entry.at for entry in parse_fleet(text, "fleet.yaml").entries] == [
        "s3://lake/logs/*",
        "gs://lake/a",
    ]


@pytest.mark.parametrize("name", ["123", "null", "a.b", "a" * 46])
def test_a_release_name_that_would_name_nothing_well_is_refused(name: str) -> None:
    done = _helm(yaml.safe_dump(MINE), "template", name, str(CHART))
    assert done.returncode != 0


def test_releases_of_other_names_are_told_apart_and_seen_by_the_alerts() -> None:
    done = _helm(yaml.safe_dump(ALL), "template", "a" * 45, str(CHART))
    assert done.returncode == 0, done.stderr
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    most = {"CronJob": 52, "StatefulSet": 52}
    assert all(len(d["metadata"]["name"]) <= most.get(d["kind"], 63) for d in documents)
    monitor = named(documents, "PodMonitor", "a" * 45)["spec"]
    assert monitor["jobLabel"] == "app.kubernetes.io/part-of"
    pod = pod_of(documents, f"{'a' * 45}-watch")
    assert "compactor" in pod.metadata["labels"]["app.kubernetes.io/part-of"]
    assert f"--config=/etc/compactor/lsm.{'a' * 45}.yaml" in pod.containers[0]["args"]


@pytest.mark.parametrize("endpoint", ["http://[fd00::1]:9000/", "http://minio:9000"])
def test_ports_of_endpoints_are_found_in_addresses_of_any_kind(endpoint: str) -> None:
    documents = rendered({**MINE, "s3": {"endpoint": endpoint}})
    policy = named(documents, "NetworkPolicy", "compactor")["spec"]
    assert {"protocol": "TCP", "port": 9000} in policy["egress"][1]["ports"]


def test_an_older_kubernetes_than_promised_is_refused() -> None:
    done = _helm(yaml.safe_dump(MINE), "template", "c", str(CHART), "--kube-version", "1.28.0")
    assert "1.28.0" in done.stderr
    assert done.returncode != 0


def test_chart_and_image_have_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    (container,) = pod_of(rendered(MINE), "compactor-watch").containers
    assert container["image"] == f"registry.corp/lsm-compactor:{__version__}"
    digest = f"sha256:{'0' * 64}"
    pinned = {**MINE, "image": {"repository": "r.corp/c", "digest": digest, "pullSecrets": ["s"]}}
    pod = pod_of(rendered(pinned), "compactor-watch")
    assert pod.containers[0]["image"] == f"r.corp/c@{digest}"
    assert pod.spec["imagePullSecrets"] == [{"name": "s"}]


def test_the_page_shows_values_that_render() -> None:
    text = (ROOT / "docs/how-to/kubernetes.md").read_text()
    shown = text.split("```yaml\n# values.yaml\n", 1)[1].split("```", 1)[0]
    mine = yaml.safe_load(
        shown.replace("REGISTRY/", "registry.corp/").replace("444455556666", "123456789012")
    )
    documents = rendered(mine)
    accounts = [d for d in documents if d["kind"] == "ServiceAccount"]
    assert all("eks.amazonaws.com/role-arn" in d["metadata"]["annotations"] for d in accounts)
    assert len(accounts) == 2
    assert "placeholder" in refusal(yaml.safe_load(shown))

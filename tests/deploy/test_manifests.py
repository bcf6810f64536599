"""Every overlay renders, fits the schemas, is as safe as its namespace asks, sized by its settings."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pyspark
import pytest
import yaml
from click.testing import CliRunner

from compactor import __version__
from compactor.cli.shared_options import duration_seconds
from compactor.settings.compaction import CompactionSettings, Policy
from compactor.telemetry.metrics import catalog
from deploy.kubernetes import resources
from deploy.kubernetes.resources import GIB, MIB, PodResources
from tests.deploy.manifests import (
    KUBERNETES,
    NAMES,
    ROOT,
    Call,
    PodTemplate,
    bytes_of,
    call_of,
    named,
    parse,
    pod_templates,
    render,
    render_folder,
    spark_application,
    spark_settings,
)
from tests.deploy.security import NEWEST, OLDEST, faults_of, schema_faults

pytestmark = pytest.mark.program

Json = dict[str, Any]
APPLICATION_SCHEMA = json.loads((ROOT / "tests/deploy/spark_application.json").read_text())
CUSTOM_SCHEMAS = json.loads((ROOT / "tests/deploy/custom_resources.json").read_text())
OF_OPERATOR = ("SparkApplication", "ScheduledSparkApplication")
CUSTOM = (*OF_OPERATOR, *CUSTOM_SCHEMAS["properties"])
SPARK = [name for name in NAMES if name not in ("watch", "watch-autoscaled", "local")]

overlays = pytest.mark.parametrize("overlay", NAMES)


def applications(documents: list[Json]) -> list[Json]:
    return [spark_application(d) for d in documents if d["kind"] in OF_OPERATOR]


def pod_document(pod: PodTemplate) -> Json:
    spec = copy.deepcopy(pod.spec)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", **pod.metadata},
        "spec": spec,
    }


def test_there_is_an_overlay_for_each_way_to_run() -> None:
    assert {"cronjob", "local", "spark-operator", "watch"} <= set(NAMES)


@overlays
def test_every_document_fits_kubernetes_own_schema(overlay: str) -> None:
    documents = [d for d in render(overlay) if d["kind"] not in CUSTOM]
    assert [fault for document in documents for fault in schema_faults(document)] == []


@overlays
def test_every_pod_template_fits_the_schema_of_pods(overlay: str) -> None:
    pods = list(pod_templates(render(overlay)))
    assert pods
    assert [fault for pod in pods for fault in schema_faults(pod_document(pod))] == []


def test_a_misspelt_field_does_not_fit() -> None:
    (pod,) = [p for p in pod_templates(render("watch")) if p.place == "compactor-watch"]
    document = pod_document(pod)
    document["spec"]["containers"][0]["readynessProbe"] = {}
    assert schema_faults(document) != []


def test_an_older_kubernetes_than_promised_does_not_know_all_fields() -> None:
    budget = named(render("watch"), "PodDisruptionBudget", "compactor-watch")
    assert schema_faults(budget, ["1.25"]) != []
    text = (ROOT / "docs/how-to/kubernetes.md").read_text()
    assert f"Kubernetes {OLDEST} or newer" in text
    assert f"{OLDEST} and {NEWEST}" in text


def custom_faults(document: Json) -> list[str]:
    schema = {**CUSTOM_SCHEMAS, "required": [document["kind"]]}
    validator = jsonschema.Draft202012Validator(schema)
    return [error.message for error in validator.iter_errors({document["kind"]: document})]


def test_custom_resources_fit_their_schemas() -> None:
    documents = [*render("watch-autoscaled"), *render_folder(KUBERNETES / "components/monitoring")]
    found = [d for d in documents if d["kind"] in CUSTOM]
    assert {d["kind"] for d in found} == set(CUSTOM_SCHEMAS["properties"])
    assert [fault for document in found for fault in custom_faults(document)] == []


@pytest.mark.parametrize("kind", ["PodMonitor", "ScaledObject", "PrometheusRule"])
def test_a_misspelt_field_of_a_custom_resource_does_not_fit(kind: str) -> None:
    documents = [*render("watch-autoscaled"), *render_folder(KUBERNETES / "components/monitoring")]
    (document,) = [d for d in documents if d["kind"] == kind]
    document["spec"]["spec"] = {}
    assert custom_faults(document) != []


def test_the_operators_alerts_are_those_of_prometheus() -> None:
    documents = render_folder(KUBERNETES / "components/monitoring")
    (rules,) = [d for d in documents if d["kind"] == "PrometheusRule"]
    assert rules["spec"] == yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())


@pytest.mark.parametrize("overlay", ["watch", "spark-operator-watch"])
def test_the_monitor_scrapes_the_pods_that_serve_metrics(overlay: str) -> None:
    documents = render_folder(KUBERNETES / "components/monitoring")
    (monitor,) = [d["spec"] for d in documents if d["kind"] == "PodMonitor"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    serving = [
        pod
        for pod in pod_templates(render(overlay))
        if any(p["name"] == endpoint["port"] for c in pod.containers for p in c.get("ports", []))
    ]
    assert len(serving) == 1
    labels = serving[0].metadata["labels"]
    assert _selects(monitor["selector"], labels)
    for expression in monitor["selector"]["matchExpressions"]:
        assert expression["operator"] == "In"
        assert labels[expression["key"]] in expression["values"]
    assert endpoint["path"] == serving[0].metadata["annotations"]["prometheus.io/path"]


def test_workers_are_scaled_by_the_debt_that_they_tell_before_writers_have_to_wait() -> None:
    documents = render("watch-autoscaled")
    fleet = named(documents, "StatefulSet", "compactor-watch")
    assert "replicas" not in fleet["spec"], "every apply would set it back"
    scaled = named(documents, "ScaledObject", "compactor-watch")["spec"]
    target = scaled["scaleTargetRef"]
    assert (target["kind"], target["name"]) == (fleet["kind"], fleet["metadata"]["name"])
    (trigger,) = scaled["triggers"]
    names = set(re.findall(r"compactor_\w+", trigger["metadata"]["query"]))
    assert names == {catalog.DEBT_SCORE.name}
    a_worker = float(trigger["metadata"]["threshold"])
    assert scaled["minReplicaCount"] >= 1, "without a worker nobody tells the debt"
    assert scaled["maxReplicaCount"] * a_worker < 1, "all are there before writers have to stop"
    # As the comment says: a worker for what it compacts in less than ten minutes.
    waiting = a_worker * Policy().stop_pending_bytes
    assert 300 < waiting / (resources.SHAPE.tasks * resources.TASK_BYTES_PER_SECOND) < 600
    down = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    grace = fleet["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert all(policy["periodSeconds"] >= 2 * grace for policy in down["policies"])


@pytest.mark.parametrize("overlay", ["spark-operator", "spark-operator-watch"])
def test_applications_of_the_operator_fit_its_schema(overlay: str) -> None:
    (application,) = applications(render(overlay))
    jsonschema.validate(application, APPLICATION_SCHEMA)
    assert application["sparkVersion"] == pyspark.__version__


@overlays
def test_every_pod_meets_the_restricted_policy_and_ours(overlay: str) -> None:
    assert [fault for pod in pod_templates(render(overlay)) for fault in faults_of(pod)] == []


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (("securityContext", "runAsNonRoot"), False, "root"),
        (("securityContext", "seccompProfile"), {"type": "Unconfined"}, "seccomp"),
        (("containers", 0, "securityContext", "readOnlyRootFilesystem"), False, "written"),
        (("containers", 0, "securityContext", "allowPrivilegeEscalation"), True, "grow"),
        (("containers", 0, "securityContext", "capabilities"), {"add": ["SYS_ADMIN"]}, "capabilities"),
        (("containers", 0, "image"), "registry.example.com/lsm-compactor:latest", "exact version"),
        (("containers", 0, "image"), "registry.example.com/lsm-compactor", "exact version"),
        (("containers", 0, "resources", "limits"), {"ephemeral-storage": "9Gi"}, "memory"),
        (("containers", 0, "env"), [{"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}], "literally"),
        (("volumes", 0), {"name": "tmp", "emptyDir": {}}, "no limit"),
        (("volumes", 0), {"name": "tmp", "hostPath": {"path": "/tmp"}}, "host's"),
    ],
)  # fmt: skip
def test_what_the_policy_forbids_is_seen(path: tuple[Any, ...], value: object, fault: str) -> None:
    (pod,) = [p for p in pod_templates(render("watch")) if p.place == "compactor-watch"]
    spec: Any = copy.deepcopy(pod.spec)
    parent = spec
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    assert any(fault in found for found in faults_of(PodTemplate("p", pod.metadata, spec)))


@overlays
def test_there_are_no_secrets_in_the_manifests(overlay: str) -> None:
    documents = render(overlay)
    assert [d for d in documents if d["kind"] == "Secret"] == []
    settings = named(documents, "ConfigMap", "compactor-settings")["data"]
    assert not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} & set(settings)
    for pod in pod_templates(documents):
        for container in pod.containers:
            sources = container.get("envFrom", [])
            assert all(s["secretRef"].get("optional") for s in sources if "secretRef" in s)


@overlays
def test_our_image_is_the_same_everywhere_and_of_this_version(overlay: str) -> None:
    documents = render(overlay)
    images = {
        c["image"] for pod in pod_templates(documents) for c in pod.containers if "image" in c
    }
    images |= {application["image"] for application in applications(documents)}
    images.add(named(documents, "ConfigMap", "compactor-settings")["data"]["EXECUTOR_IMAGE"])
    (ours,) = {image for image in images if "lsm-compactor" in image}
    assert ours.endswith(f":{__version__}")


@overlays
def test_only_drivers_have_a_token_and_only_they_may_ask_the_api_server(overlay: str) -> None:
    documents = render(overlay)
    for pod in pod_templates(documents):
        is_driver = pod.metadata["labels"].get("app.kubernetes.io/component") == "driver"
        assert pod.spec["automountServiceAccountToken"] is is_driver
    accounts = [d for d in documents if d["kind"] == "ServiceAccount"]
    assert all(account["automountServiceAccountToken"] is False for account in accounts)
    for role in (d for d in documents if d["kind"] == "Role"):
        assert {resource for rule in role["rules"] for resource in rule["resources"]} == {"pods"}
        assert "*" not in {verb for rule in role["rules"] for verb in rule["verbs"]}
    assert [d for d in documents if d["kind"] in ("ClusterRole", "ClusterRoleBinding")] == []
    assert any(d["kind"] == "Role" for d in documents) == (overlay in SPARK)


@overlays
def test_only_the_vacuum_has_the_identity_that_may_delete(overlay: str) -> None:
    """Otherwise who has a worker's key has the vacuum's, and the policies divide nothing."""
    documents = render(overlay)
    accounts = {d["metadata"]["name"]: d for d in documents if d["kind"] == "ServiceAccount"}
    assert {"compactor", "compactor-vacuum"} <= set(accounts)
    assert not any("annotations" in account["metadata"] for account in accounts.values()), (
        "roles are the user's: a placeholder would be somebody's"
    )
    for pod in pod_templates(documents):
        if not any("lsm-compactor" in c.get("image", "lsm-compactor") for c in pod.containers):
            continue  # the S3 server
        is_vacuum = any("vacuum" in c.get("args", []) for c in pod.containers)
        account = pod.spec.get("serviceAccountName", "compactor")  # Spark's settings say others
        assert (account == "compactor-vacuum") is is_vacuum
        (secret,) = {
            s["secretRef"]["name"] for c in pod.containers for s in c["envFrom"] if "secretRef" in s
        }
        assert secret == ("compactor-vacuum-credentials" if is_vacuum else "compactor-credentials")
    assert (overlay in SPARK) == ("compactor-driver" in accounts)


def spark_settings_of(documents: list[Json]) -> dict[str, str]:
    for application in applications(documents):
        return dict(application["sparkConf"])
    data = named(documents, "ConfigMap", "compactor-spark")["data"]
    return spark_settings(data["spark.conf"])


@pytest.mark.parametrize("overlay", SPARK)
def test_driver_and_executors_of_spark_know_each_other_by_a_secret_that_no_pod_shows(
    overlay: str,
) -> None:
    documents = render(overlay)
    settings = spark_settings_of(documents)
    assert settings["spark.authenticate"] == settings["spark.network.crypto.enabled"] == "true"
    folder, _, name = settings["spark.authenticate.secret.file"].rpartition("/")
    assert f"--from-literal={name}=" in (ROOT / "docs/how-to/kubernetes.md").read_text()
    pods = [pod for pod in pod_templates(documents) if pod.place != "compactor-vacuum"]
    assert len(pods) == 2
    for pod in pods:
        (container,) = pod.containers
        assert not any("SECRET" in entry["name"] for entry in container.get("env", []))
        (mount,) = [m for m in container["volumeMounts"] if m["mountPath"] == folder]
        (volume,) = [v for v in pod.spec["volumes"] if v["name"] == mount["name"]]
        assert volume["secret"]["secretName"] == "compactor-spark"
        assert "optional" not in volume["secret"]


@overlays
def test_all_is_in_one_namespace_that_enforces_the_restricted_policy(overlay: str) -> None:
    documents = render(overlay)
    (namespace,) = [d for d in documents if d["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    name = namespace["metadata"]["name"]
    assert {d["metadata"]["namespace"] for d in documents if d["kind"] != "Namespace"} == {name}
    subjects = [s for d in documents if d["kind"] == "RoleBinding" for s in d["subjects"]]
    assert all(subject["namespace"] == name for subject in subjects)


@overlays
def test_everything_is_denied_but_what_a_policy_allows(overlay: str) -> None:
    documents = render(overlay)
    deny = named(documents, "NetworkPolicy", "default-deny")["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    policies = [d["spec"] for d in documents if d["kind"] == "NetworkPolicy"]
    for policy in policies:
        for rule in (*policy.get("ingress", []), *policy.get("egress", [])):
            assert rule.get("ports"), "a rule without ports allows all"
            assert rule.get("from") or rule.get("to"), "a rule without peers allows all"
    for policy in policies:
        if policy["podSelector"]:
            chosen = [p for p in _labels(documents) if _selects(policy["podSelector"], p)]
            assert chosen, f"{policy['podSelector']} selects nothing"


def _labels(documents: list[Json]) -> list[Json]:
    return [pod.metadata["labels"] for pod in pod_templates(documents)]


def _selects(selector: Json, labels: Json) -> bool:
    return all(labels.get(key) == value for key, value in selector["matchLabels"].items())


@overlays
def test_selectors_of_budgets_services_and_controllers_choose_their_pods(overlay: str) -> None:
    documents = render(overlay)
    for document in documents:
        selector = document.get("spec", {}).get("selector")
        if selector:
            by_labels = selector if "matchLabels" in selector else {"matchLabels": selector}
            assert any(_selects(by_labels, labels) for labels in _labels(documents))


@overlays
def test_a_drain_waits_for_runs_that_end_and_for_nothing_else(overlay: str) -> None:
    documents = render(overlay)
    budgets = [d["spec"] for d in documents if d["kind"] == "PodDisruptionBudget"]
    for budget in budgets:
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        ends = not any(d["kind"] in ("StatefulSet", "SparkApplication") for d in documents)
        assert ("minAvailable" in budget) is ends
        assert ("maxUnavailable" in budget) is not ends
    assert len(budgets) == (overlay != "spark-operator-watch")


@overlays
def test_settings_have_names_that_change_with_them_wherever_they_are_referred_to(
    overlay: str,
) -> None:
    documents = render(overlay)
    maps = {d["metadata"]["name"] for d in documents if d["kind"] == "ConfigMap"}
    assert all(re.fullmatch(r"[a-z-]+-[a-z0-9]{10}", name) for name in maps)
    referred = set()
    for pod in pod_templates(documents):
        referred |= {v["configMap"]["name"] for v in pod.spec["volumes"] if "configMap" in v}
        for container in pod.containers:
            for source in container.get("envFrom", []):
                referred |= {source["configMapRef"]["name"]} if "configMapRef" in source else set()
    assert referred == maps


# The numbers.


def calls(documents: list[Json]) -> Iterator[tuple[PodTemplate, Call]]:
    for pod in pod_templates(documents):
        for container in pod.containers:
            call = call_of(container.get("args", []))
            if call is not None:
                yield pod, call


def assert_sized(pod: PodTemplate, expected: PodResources) -> None:
    (container,) = pod.containers
    requests, limits = container["resources"]["requests"], container["resources"]["limits"]
    assert requests["cpu"] == str(expected.cpu)
    assert limits["memory"] == requests["memory"] == expected.memory
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    assert bytes_of(volumes["tmp"]["emptyDir"]["sizeLimit"]) == expected.tmp_bytes


def spool_request_bytes(spec: Json) -> int:
    (volume,) = [v for v in spec["volumes"] if v["name"] == "spool"]
    claim = volume["ephemeral"]["volumeClaimTemplate"]["spec"]
    return bytes_of(claim["resources"]["requests"]["storage"])


@overlays
def test_pods_have_the_shape_that_the_documents_numbers_are_of(overlay: str) -> None:
    documents, shape = render(overlay), resources.SHAPE
    found = [call for _, call in calls(documents) if call.command in ("watch", "compact")]
    found += [parse(application["arguments"]) for application in applications(documents)]
    for call in found:
        assert call.settings.memory_limit_bytes == shape.memory_limit_bytes
        if overlay != "local":  # a small one, for a laptop
            assert call.settings.spool_limit_bytes == shape.spool_limit_bytes
            assert call.tasks in (
                shape.tasks,
                2 * shape.tasks,
            )  # of one worker, or of two executors
        if call.command == "watch":
            assert duration_seconds(call.options["drain_seconds"]) == shape.drain_seconds


def test_the_fleet_has_as_many_workers_as_the_documents_table_asks_for() -> None:
    fleet = named(render("watch"), "StatefulSet", "compactor-watch")
    assert fleet["spec"]["replicas"] == resources.workers_for(1e12, resources.SHAPE.tasks)


CONSOLE = re.compile(
    r"^\$ python -m deploy\.kubernetes\.resources([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL
)


@pytest.mark.parametrize("document", ["kubernetes.md", "operations.md"])
def test_the_documents_show_what_the_numbers_command_says(document: str) -> None:
    shown = CONSOLE.findall((ROOT / "docs/how-to" / document).read_text())
    assert shown
    for arguments, output in shown:
        done = CliRunner().invoke(resources.main, arguments.split())
        assert done.exit_code == 0, done.output
        assert done.output == output


@pytest.mark.parametrize("arguments", ["--memory-limit 1QB", "--memory-limit 1KiB", "--tasks 0"])
def test_the_numbers_command_refuses_what_a_worker_would(arguments: str) -> None:
    done = CliRunner().invoke(resources.main, arguments.split())
    assert done.exit_code == 2
    assert "Error: " in done.output


@pytest.mark.parametrize("overlay", ["watch", "local"])
def test_a_workers_pod_is_sized_by_its_settings(overlay: str) -> None:
    ((pod, call),) = [(p, c) for p, c in calls(render(overlay)) if c.command == "watch"]
    expected = resources.local_worker(call.settings, call.tasks)
    assert call.options["master"] == f"local[{call.tasks}]"
    assert_sized(pod, expected)
    assert spool_request_bytes(pod.spec) == expected.spool_bytes
    (container,) = pod.containers
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    heap = f"--driver-memory {resources.HEAP_BYTES // MIB}m "
    assert environment["PYSPARK_SUBMIT_ARGS"].startswith(heap)
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["spool"] == call.options["spool_directory"]


@overlays
def test_the_vacuums_pod_is_sized_for_a_command_without_rows(overlay: str) -> None:
    ((pod, _),) = [(p, c) for p, c in calls(render(overlay)) if c.command == "vacuum"]
    assert_sized(pod, resources.in_process())


def test_a_driver_and_its_executors_are_sized_by_their_settings() -> None:
    documents = render("cronjob")
    ((pod, call),) = [(p, c) for p, c in calls(documents) if c.command == "compact"]
    assert_sized(pod, resources.driver())
    data = named(documents, "ConfigMap", "compactor-spark")["data"]
    spark = spark_settings(data["spark.conf"])
    assert bytes_of(spark["spark.driver.memory"]) == resources.HEAP_BYTES
    assert_executors(
        {name.removeprefix("spark.executor."): value for name, value in spark.items()}, call
    )
    template = yaml.safe_load(data["executor.yaml"])
    assert spool_request_bytes(template["spec"]) == spool_of(spark["spark.executor.cores"], call)
    assert spark["spark.decommission.enabled"] == "true"


@pytest.mark.parametrize("overlay", ["spark-operator", "spark-operator-watch"])
def test_applications_of_the_operator_are_sized_by_their_settings(overlay: str) -> None:
    (application,) = applications(render(overlay))
    call = parse(application["arguments"])
    driver, executor = application["driver"], application["executor"]
    assert driver["cores"] == resources.driver().cpu
    assert (
        bytes_of(driver["memory"]) + bytes_of(driver["memoryOverhead"])
        == resources.driver().memory_bytes
    )
    assert bytes_of(driver["memoryOverhead"]) == resources.driver_overhead_bytes()
    assert_executors({name: str(value) for name, value in executor.items()}, call)
    assert spool_request_bytes(executor["template"]["spec"]) == spool_of(executor["cores"], call)
    assert application["sparkConf"]["spark.decommission.enabled"] == "true"


def assert_executors(executor: dict[str, str], call: Call) -> None:
    cores = int(executor["cores"])
    assert call.tasks == cores * int(executor["instances"])
    assert bytes_of(executor["memory"]) == resources.HEAP_BYTES
    overhead = bytes_of(executor["memoryOverhead"])
    assert overhead == resources.executor_overhead_bytes(call.settings, cores)


def spool_of(cores: str | int, call: Call) -> int:
    return resources.executor(call.settings, int(cores)).spool_bytes


@pytest.mark.parametrize("overlay", ["watch", "local", "spark-operator-watch"])
def test_a_worker_has_time_to_drain_and_probes_where_it_serves_them(overlay: str) -> None:
    documents = render(overlay)
    watches = [(p, c) for p, c in calls(documents) if c.command == "watch"]
    for application in applications(documents):
        (driver,) = [p for p in pod_templates(documents) if p.place.endswith(" driver")]
        watches.append((driver, parse(application["arguments"])))
    ((pod, call),) = watches
    drain = duration_seconds(call.options["drain_seconds"])
    assert pod.spec["terminationGracePeriodSeconds"] >= resources.grace_seconds(drain)
    port = int(call.options["metrics_port"])
    assert call.options["metrics_address"] == "0.0.0.0", "probes come from outside of the pod"
    (container,) = pod.containers
    (named_port,) = container["ports"]
    assert (named_port["name"], named_port["containerPort"]) == ("metrics", port)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        path = "/readyz" if probe == "readinessProbe" else "/healthz"
        assert container[probe]["httpGet"] == {"path": path, "port": "metrics"}
    assert pod.metadata["annotations"]["prometheus.io/port"] == str(port)
    (metrics,) = named(documents, "NetworkPolicy", "allow-metrics")["spec"]["ingress"]
    assert metrics["ports"] == [{"protocol": "TCP", "port": port}]


def test_ports_of_spark_are_those_that_the_policies_let_through() -> None:
    documents = render("cronjob")
    spark = spark_settings(named(documents, "ConfigMap", "compactor-spark")["data"]["spark.conf"])
    driver, blocks = int(spark["spark.driver.port"]), int(spark["spark.blockManager.port"])
    policy = named(documents, "NetworkPolicy", "spark-driver")["spec"]["ingress"][0]
    assert {port["port"] for port in policy["ports"]} == {driver, blocks}
    policy = named(documents, "NetworkPolicy", "spark-executor")["spec"]
    assert {port["port"] for port in policy["ingress"][0]["ports"]} == {blocks}
    assert {port["port"] for port in policy["egress"][0]["ports"]} == {driver, blocks}


def test_resources_grow_with_the_settings_and_the_tasks() -> None:
    small = CompactionSettings(memory_limit_bytes=64 * MIB, spool_limit_bytes=GIB)
    large = CompactionSettings(memory_limit_bytes=GIB, spool_limit_bytes=GIB)
    two, four = resources.local_worker(small, 2), resources.local_worker(small, 4)
    assert (
        2 * (64 + 150) * MIB
        <= four.memory_bytes - two.memory_bytes
        <= 2 * (64 + 150) * MIB + 64 * MIB
    )
    assert (two.spool, four.spool, four.cpu) == ("4Gi", "8Gi", 4)
    more = resources.executor(large, 2).memory_bytes - resources.executor(small, 2).memory_bytes
    assert more == 2 * (1024 - 64) * MIB

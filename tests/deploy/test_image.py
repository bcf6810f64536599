"""The image's recipe: a base that is pinned, scripts that do what Spark expects of an image."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from compactor import __version__
from tests.deploy.manifests import ROOT

DOCKER = ROOT / "deploy" / "docker"


def script(name: str) -> Path:
    return Path(sysconfig.get_path("scripts")) / name


def test_the_dockerfile_and_all_scripts_are_free_of_lint() -> None:
    scripts = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "deploy").rglob("*.sh"))
    assert len(scripts) >= 7
    commands: list[list[str | Path]] = [
        [script("hadolint"), "deploy/docker/Dockerfile"],
        [script("shellcheck"), *scripts],
    ]
    for command in commands:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_dockerfile_copies_only_what_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [line[1:] for line in ignored if line.startswith("!")]
    assert "*" in ignored
    copies = re.findall(r"^COPY (?!--from)(.*)$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    assert len(copies) >= 5
    for line in copies:
        *sources, _ = [word for word in line.split() if not word.startswith("--")]
        for source in sources:
            assert (ROOT / source).exists(), source
            assert any(source == path or source.startswith(f"{path}/") for path in allowed), source


def test_the_image_says_what_it_is_and_of_which_version() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    assert f'org.opencontainers.image.version="{__version__}"' in text
    assert 'org.opencontainers.image.revision="${REVISION}"' in text


def test_the_image_runs_as_the_user_of_the_manifests() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["185:185"]


def test_the_base_is_pinned_by_digest() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE}"}
    bases = re.findall(r"^ARG BASE=(.*)$", text, re.MULTILINE)
    assert len(bases) == 1 and re.fullmatch(
        r"python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", bases[0]
    )


@pytest.fixture
def tini(tmp_path: Path) -> Path:
    """Shows the command that would have run, an argument a line."""
    path = tmp_path / "tini"
    path.write_text('#!/bin/sh\nshift 2\nprintf "%s\\n" "$@"\n')
    path.chmod(0o755)
    return path


def entrypoint(tini: Path, arguments: list[str], **environment: str) -> list[str]:
    done = subprocess.run(
        [str(DOCKER / "entrypoint.sh"), *arguments],
        env={"PATH": os.environ["PATH"], "TINI": str(tini), **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_the_entrypoint_runs_any_command_as_it_is(tini: Path) -> None:
    command = ["compactor", "watch", "s3://bucket/a table", "--poll", "2s"]
    assert entrypoint(tini, command) == command


def test_the_entrypoint_starts_a_driver_for_spark(tini: Path) -> None:
    command = entrypoint(
        tini, ["driver", "--class", "org.apache.spark.deploy.PythonRunner", "job.py", "compact"],
        SPARK_HOME="/opt/spark", SPARK_DRIVER_BIND_ADDRESS="10.0.0.1",
    )  # fmt: skip
    assert command == [
        str(DOCKER / "driver.sh"), "/opt/spark/bin/spark-submit",
        "--conf", "spark.driver.bindAddress=10.0.0.1",
        "--deploy-mode", "client", "--class", "org.apache.spark.deploy.PythonRunner", "job.py", "compact",
    ]  # fmt: skip


@pytest.mark.parametrize("program", ["spark-submit", "/opt/spark/bin/spark-submit"])
def test_the_entrypoint_runs_spark_submit_so_that_its_program_is_told_to_stop(
    tini: Path, program: str
) -> None:
    command = [program, "--master=k8s://https://x", "job.py", "compact"]
    assert entrypoint(tini, command) == [str(DOCKER / "driver.sh"), *command]


class Submitted:
    """driver.sh with a bash in the place of the JVM: a SIGTERM ends it at once, too."""

    def __init__(self, folder: Path, program: str, **environment: str) -> None:
        submit = folder / "spark-submit"
        submit.write_text(f"#!/bin/bash\n{program}\n")
        submit.chmod(0o755)
        self.process = subprocess.Popen(
            [str(DOCKER / "driver.sh"), str(submit)],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def wait_until_up(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        try:
            output, _ = self.process.communicate(timeout=20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.returncode, output


PROGRAM = """
import signal, sys
def end(number, frame):
    print("drained", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
while True:
    signal.pause()
"""


def test_a_driver_hands_a_stop_on_to_the_program_and_ends_as_it_does(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    # `exit` keeps bash, in the JVM's stead, from becoming the program.
    submitted = Submitted(tmp_path, f'"{sys.executable}" "{tmp_path}/program.py"\nexit $?')
    submitted.wait_until_up()
    assert submitted.stop() == (7, "drained\n")


def test_a_driver_leaves_the_processes_alone_that_run_tasks(tmp_path: Path) -> None:
    for name in ("program.py", "pyspark.daemon.py"):
        (tmp_path / name).write_text(PROGRAM)
    submitted = Submitted(
        tmp_path,
        f'exec 3< <("{sys.executable}" "{tmp_path}/pyspark.daemon.py"); daemon=$!; read -r <&3\n'
        f'"{sys.executable}" "{tmp_path}/program.py"; status=$?\n'
        'kill -KILL "$daemon" && echo "tasks ran on"; cat <&3; exit "$status"',
    )
    submitted.wait_until_up()
    assert submitted.stop() == (7, "drained\ntasks ran on\n")


def test_a_driver_whose_program_has_not_begun_ends_at_once(tmp_path: Path) -> None:
    submitted = Submitted(tmp_path, "echo up; exec tail -f /dev/null")
    submitted.wait_until_up()
    assert submitted.stop() == (143, "")


@pytest.mark.parametrize("command", ['"$@"', "jvm:="])
def test_a_driver_ends_though_a_stop_comes_before_it_knows_its_jvm(
    tmp_path: Path, command: str
) -> None:
    # Bash reads this file first, and then sends itself the stop in front of the command.
    stopping = tmp_path / "stopping"
    stopping.write_text(
        'stop_at() { case $BASH_COMMAND in *"$AT"*) trap - DEBUG; kill -s TERM $$ ;; esac; }\n'
        "trap stop_at DEBUG\n"
    )
    submitted = Submitted(tmp_path, "exec tail -f /dev/null", BASH_ENV=str(stopping), AT=command)
    assert submitted.ended() == (143, "")


@pytest.mark.spark
def test_a_worker_that_spark_submitted_ends_its_compactions_when_its_container_is_stopped(
    tini: Path, tmp_path: Path
) -> None:
    tini.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    worker = subprocess.Popen(
        [str(DOCKER / "entrypoint.sh"), "spark-submit", "--master=local[1]",
         str(ROOT / "deploy/spark-submit/compactor_job.py"),
         "watch", str(tmp_path / "t"), "--drain=20s", "--json"],
        env={**os.environ, "TINI": str(tini), "PATH": f"{script('.')}:{os.environ['PATH']}",
             "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert worker.stdout is not None
    for line in worker.stdout:
        if '"watching"' in line:
            break
    worker.send_signal(signal.SIGTERM)
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert json.loads(output.splitlines()[-1])["event"] == "stopped"


def test_the_entrypoint_starts_an_executor_with_the_options_spark_gives_in_their_order(
    tini: Path,
) -> None:
    options = {f"SPARK_JAVA_OPT_{i}": f"-Dx{i}=a b" for i in range(12)}
    command = entrypoint(
        tini, ["executor"], JAVA_HOME="/opt/java", SPARK_HOME="/opt/spark", SPARK_EXECUTOR_MEMORY="512m",
        SPARK_DRIVER_URL="spark://d@10.0.0.1:7078", SPARK_EXECUTOR_ID="3", SPARK_EXECUTOR_CORES="2",
        SPARK_APPLICATION_ID="app", SPARK_EXECUTOR_POD_IP="10.0.0.2", SPARK_RESOURCE_PROFILE_ID="0",
        SPARK_EXECUTOR_POD_NAME="pod", **options,
    )  # fmt: skip
    assert command[:15] == ["/opt/java/bin/java", *options.values(), "-Xms512m", "-Xmx512m"]
    assert command[command.index("--podName") + 1] == "pod"
    assert command[command.index("--executor-id") + 1] == "3"


def test_the_entrypoint_gives_an_executor_sparks_secret_as_the_driver_reads_it(
    tini: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("known to both\n")
    tini.write_text('#!/bin/sh\necho "$_SPARK_AUTH_SECRET"\n')
    names = ("JAVA_HOME", "SPARK_HOME", "SPARK_EXECUTOR_MEMORY", "SPARK_DRIVER_URL", "SPARK_EXECUTOR_ID",
             "SPARK_EXECUTOR_CORES", "SPARK_APPLICATION_ID", "SPARK_EXECUTOR_POD_IP",
             "SPARK_RESOURCE_PROFILE_ID", "SPARK_EXECUTOR_POD_NAME")  # fmt: skip
    option = f"-Dspark.authenticate.secret.file={tmp_path}/secret"
    (shown,) = entrypoint(
        tini, ["executor"], **dict.fromkeys(names, "any"), SPARK_JAVA_OPT_0=option
    )
    assert base64.b64decode(shown) == b"known to both\n"


def test_the_script_before_a_stop_tells_the_executor_and_waits_for_its_end(tmp_path: Path) -> None:
    # To the kernel a process has its file's name. This one ends some time after the signal.
    java = tmp_path / "java"
    java.symlink_to("/bin/bash")
    report = tmp_path / "report"
    on_signal = f"sleep 0.3; echo ended > {report}; exit 0"
    program = f'trap "{on_signal}" PWR; echo up; while :; do read -rt 0.05 <> <(:) || :; done'
    executor = subprocess.Popen([str(java), "-c", program], stdout=subprocess.PIPE)
    assert executor.stdout is not None
    executor.stdout.readline()
    # The script looks at all processes of its container: here at ours only.
    namespaced = (DOCKER / "decom.sh").read_text().replace("/proc/[0-9]*", f"/proc/{executor.pid}")
    waiter = subprocess.Popen(["bash", "-c", namespaced])
    assert executor.wait(20) == 0
    assert waiter.wait(20) == 0
    assert report.read_text() == "ended\n"

"""Fixtures shared by the whole suite."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.azurite import azure_environment, azurite, create_container, program
from tests.support.gcs_server import GcsServer, gcs_environment
from tests.support.ministack import INSTALLED, create_bucket, ministack
from tests.support.parameter_ids import words_for
from tests.support.s3_server import S3Server
from tests.support.wording import Wording

_buckets = itertools.count()

# How long an example takes is a matter of the machine. Examples are the same ones every day, so that what is
# red is what somebody changed; `make test-long` looks for new ones.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One S3 server for the suite; subprocesses and Spark workers find it by the environment."""
    with S3Server() as server, pytest.MonkeyPatch.context() as environment:
        s3_environment(server, environment)
        yield server


def s3_environment(server: S3Server, environment: pytest.MonkeyPatch) -> None:
    """What makes every AWS tool of this process and its children talk to the server."""
    environment.setenv("AWS_ENDPOINT_URL", server.endpoint_url)
    environment.setenv("AWS_ACCESS_KEY_ID", "test")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
    environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
    environment.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> Iterator[str]:
    """A fresh bucket; the server's request log begins empty."""
    name = s3_server.create_bucket(f"bucket-{next(_buckets)}")
    s3_server.reset()
    yield name
    s3_server.reset()


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    """A model of Google Cloud Storage; subprocesses find it by the environment."""
    with GcsServer() as server, pytest.MonkeyPatch.context() as environment:
        gcs_environment(server, environment)
        yield server


@pytest.fixture
def gcs_bucket(gcs_server: GcsServer) -> Iterator[str]:
    """A fresh bucket; the server's request log begins empty."""
    name = gcs_server.create_bucket(f"bucket-{next(_buckets)}")
    gcs_server.reset()
    yield name
    gcs_server.reset()


@pytest.fixture(scope="session")
def azure_endpoint() -> Iterator[str]:
    """Azurite; subprocesses find it by the environment."""
    if program() is None:
        pytest.skip("no Azurite: sh deploy/setup/azurite.sh")
    with azurite() as endpoint, pytest.MonkeyPatch.context() as environment:
        azure_environment(endpoint, environment)
        yield endpoint


@pytest.fixture
def azure_container(azure_endpoint: str) -> str:
    return create_container(azure_endpoint, f"bucket-{next(_buckets)}")


@pytest.fixture(scope="session")
def ministack_endpoint() -> Iterator[str]:
    """An S3 server that is not moto."""
    if not INSTALLED.exists():
        pytest.skip("no ministack: sh deploy/setup/ministack.sh")
    with ministack() as endpoint:
        yield endpoint


@pytest.fixture
def ministack_bucket(
    s3_server: S3Server, ministack_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A fresh bucket; this test's S3 is ministack, with the credentials of the other server."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", ministack_endpoint)
    return create_bucket(ministack_endpoint, f"bucket-{next(_buckets)}")


@pytest.fixture(params=["local", "s3"])
def table_url(request: pytest.FixtureRequest, tmp_path) -> str:
    """The address of a table that does not exist yet, on each kind of store."""
    if request.param == "local":
        return str(tmp_path / "table")
    return f"s3://{request.getfixturevalue('s3_bucket')}/some/table"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-wording",
        action="store_true",
        help="write what errors say into tests/wording, instead of comparing it",
    )


def pytest_make_parametrize_id(val: object) -> str | None:
    return words_for(val)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Wording(config))

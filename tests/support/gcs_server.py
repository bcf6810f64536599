"""A local Google Cloud Storage: a model of its XML interface, made of our S3 server.

The XML interface is S3's but for the names of some headers. No emulator in reach has it: fake-gcs-server and
gcp-storage-emulator answer an upload by it with 400 and 501.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import pytest

from tests.support.s3_server import S3Server


class GcsServer(S3Server):
    """A context manager, as its base is."""

    def _carry_out(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None) == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        # moto compares the bucket as it stands in the line of the request, where obstore escapes its hyphens.
        _, bucket, *key = environ["RAW_URI"].split("/", 2)
        environ["RAW_URI"] = environ["REQUEST_URI"] = "/".join(["", unquote(bucket), *key])
        return super()._carry_out(environ, start_response)


def gcs_environment(server: GcsServer, environment: pytest.MonkeyPatch) -> None:
    """What makes obstore talk to the server."""
    environment.setenv("GOOGLE_BASE_URL", server.endpoint_url)
    environment.setenv("GOOGLE_BEARER_TOKEN", "test")

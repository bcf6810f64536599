"""Encryption of objects written to S3, configured by the environment.

    COMPACTOR_S3_SSE              AES256, aws:kms or aws:kms:dsse; unset: the bucket's default
    COMPACTOR_S3_SSE_KMS_KEY_ID   key id, alias or ARN; unset: the account's key for S3
    COMPACTOR_S3_SSE_BUCKET_KEY   true or false: one request to KMS for many objects (only with aws:kms)

Only requests that create an object carry these headers: S3 decrypts for readers by itself. The ETag of an
encrypted object is no MD5.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final, Self

from msgspec import Struct

from compactor.errors import ConfigError

ALGORITHM_VARIABLE: Final = "COMPACTOR_S3_SSE"
KEY_VARIABLE: Final = "COMPACTOR_S3_SSE_KMS_KEY_ID"
BUCKET_KEY_VARIABLE: Final = "COMPACTOR_S3_SSE_BUCKET_KEY"
VARIABLES: Final = (ALGORITHM_VARIABLE, KEY_VARIABLE, BUCKET_KEY_VARIABLE)

_KMS: Final = "aws:kms"
_ALGORITHMS: Final = ("AES256", _KMS, "aws:kms:dsse")
_BOOLEANS: Final = {"true": True, "false": False}
_KEY_ID: Final = re.compile(r"[A-Za-z0-9:/_.-]+")
"""Matches `1234abcd-...`, `alias/name`, `arn:aws:kms:region:account:key/...`; all are safe in a header."""


class S3Encryption(Struct, frozen=True):
    """Encryption arguments of requests that create an object; none by default."""

    algorithm: str | None = None
    kms_key_id: str | None = None
    bucket_key: bool | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Reads the environment. Raises `ConfigError` that names the invalid variable."""
        given = settings(os.environ if environment is None else environment)
        algorithm, key = given.get(ALGORITHM_VARIABLE), given.get(KEY_VARIABLE)
        bucket_key = given.get(BUCKET_KEY_VARIABLE)
        if algorithm is not None and algorithm not in _ALGORITHMS:
            raise ConfigError(
                f"{ALGORITHM_VARIABLE}={algorithm}: not a kind of encryption at rest; use "
                f"{', '.join(_ALGORITHMS[:-1])} or {_ALGORITHMS[-1]}"
            )
        if key is not None and (algorithm is None or not algorithm.startswith(_KMS)):
            raise ConfigError(f"{KEY_VARIABLE} is set, so {ALGORITHM_VARIABLE} has to be {_KMS}")
        if key is not None and not _KEY_ID.fullmatch(key):
            raise ConfigError(f"{KEY_VARIABLE}: not an id, alias or ARN of a KMS key")
        if bucket_key is not None and bucket_key.lower() not in _BOOLEANS:
            raise ConfigError(f"{BUCKET_KEY_VARIABLE}={bucket_key}: use true or false")
        if bucket_key is not None and algorithm != _KMS:
            raise ConfigError(
                f"{BUCKET_KEY_VARIABLE} is set, so {ALGORITHM_VARIABLE} has to be {_KMS}"
            )
        return cls(algorithm, key, None if bucket_key is None else _BOOLEANS[bucket_key.lower()])

    def arguments(self) -> dict[str, Any]:
        """Returns arguments for the client's `put_object` and `create_multipart_upload`."""
        said = {
            "ServerSideEncryption": self.algorithm,
            "SSEKMSKeyId": self.kms_key_id,
            "BucketKeyEnabled": self.bucket_key,
        }
        return {name: value for name, value in said.items() if value is not None}


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that are set and not empty."""
    return {name: environment[name] for name in VARIABLES if environment.get(name)}

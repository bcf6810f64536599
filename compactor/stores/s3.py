"""S3 and compatible stores, by boto3. The only module that imports boto3."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProxyConnectionError,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from urllib3.exceptions import HTTPError as Urllib3Error

from compactor.common.foreign import kind_of
from compactor.common.second_tries import patiently
from compactor.errors import (
    DataError,
    ObjectChangedError,
    ObjectExistsError,
    PermissionDeniedError,
    StoreError,
    StoreUnreachableError,
    UsageError,
)
from compactor.resources.upload_memory import Unaccounted, UploadMemory
from compactor.stores.answers import (
    EmptyRangeError,
    LostAnswerError,
    PreconditionError,
    UploadGoneError,
    broken_body,
    outcome_known,
    still_to_come,
)
from compactor.stores.base import (
    REQUEST_KINDS,
    ObjectInfo,
    StoreTime,
    UnfinishedUpload,
    check_size,
)
from compactor.stores.keys import check_key, check_prefix
from compactor.stores.s3_answers import refusal, server_date, written
from compactor.stores.s3_encryption import S3Encryption
from compactor.stores.s3_upload import S3Upload, UploadTarget
from compactor.stores.server_clock import ServerClock
from compactor.stores.upload_parts import PART_BYTES

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_BY_BUCKET: Final = S3Encryption()
_SDK_TRIES: Final = 4
_BODY_TRIES: Final = 4
_MAX_CONNECTIONS: Final = 1_100
"""Allow one open GET per input of the largest merge."""

_NO_CREDENTIALS: Final = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    SSOError,
)
_NOTHING_SENT: Final = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)
_ENDPOINT: Final = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+(?:/[A-Za-z0-9._~/-]*)?")
_BODY_ERRORS: Final = (BotoCoreError, Urllib3Error, OSError)
"""botocore does not wrap all of urllib3's errors, such as TLS ending within a body."""


class S3Store:
    """Objects of `bucket` under `prefix` ("" or without a trailing slash). Picklable, fork-safe.

    endpoint_url: address of a store that is not AWS; defaults to AWS_ENDPOINT_URL or the profile.
    part_bytes: size of the first parts of multipart uploads; S3 requires at least 5 MiB.
    encryption: of all writes; defaults to the bucket's own default.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint_url: str | None = None,
        part_bytes: int = PART_BYTES,
        encryption: S3Encryption = _BY_BUCKET,
        shared_with: S3Store | None = None,
    ) -> None:
        """shared_with: uses the connections of this store, and counts no requests of its own."""
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint_url = endpoint_url
        self._part_bytes = part_bytes
        self._encryption = encryption
        self._clients: _Clients = (
            _Clients(endpoint_url) if shared_with is None else shared_with._clients
        )
        self._shares = shared_with is not None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (
            self._bucket,
            self._prefix[:-1],
            self._endpoint_url,
            self._part_bytes,
            self._encryption,
        )

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def sent_requests(self) -> Mapping[str, int] | None:
        """Requests that the SDK sent for this store in this process, by `REQUEST_KINDS`.

        Counts each part of an upload, each page of a listing and each retry. None if it shares connections.
        """
        return None if self._shares else self._clients.sent().by_kind()

    @property
    def retried_requests(self) -> int:
        """The retries among `sent_requests`."""
        return 0 if self._shares else self._clients.sent().retries

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> S3Stream:
        byte_range = f"bytes={start}-" if start else None
        try:
            response = self._get(key, byte_range, if_match)
        except EmptyRangeError:
            return S3Stream(None, 0, if_match or self.head(key).etag, self._address(key))
        return S3Stream(
            response["Body"], response["ContentLength"], response["ETag"], self._address(key)
        )

    def read_range(
        self, key: str, start: int, length: int, *, if_match: str | None = None
    ) -> bytes:
        if length <= 0:
            return b""
        try:
            return self._read_body(key, f"bytes={start}-{start + length - 1}", if_match)
        except EmptyRangeError:
            return b""

    def read(self, key: str) -> bytes:
        return self._read_body(key, None, None)

    def head(self, key: str) -> ObjectInfo:
        with self._explained(key):
            response = self._clients.retrying().head_object(**self._object(key))
        return ObjectInfo(
            key,
            response["ContentLength"],
            response["ETag"],
            response["LastModified"].timestamp(),
        )

    def create(self, key: str, data: bytes) -> ObjectInfo:
        address = self._address(key)
        try:
            with outcome_known(address), self._explained(key):
                response = self._clients.single_try().put_object(
                    **self._object(key),
                    **self._encryption.arguments(),
                    Body=data,
                    IfNoneMatch="*",
                )
        except PreconditionError:
            raise ObjectExistsError(f"{address}: it exists already") from None
        return written(key, len(data), response)

    def start_upload(self, key: str, memory: UploadMemory | None = None) -> S3Upload:
        target = UploadTarget(
            key=key,
            address=self._address(key),
            client=self._clients.retrying(),
            object=self._object(key),
            created_with=self._encryption.arguments(),
            explained=functools.partial(self._explained, key),
        )
        return S3Upload(target, self._part_bytes, memory or Unaccounted())

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        arguments: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        if start_after is not None:
            arguments["StartAfter"] = self._prefix + start_after
        with self._explained(prefix):
            pages = self._clients.retrying().get_paginator("list_objects_v2").paginate(**arguments)
            for page in pages:
                for item in page.get("Contents", ()):
                    key = item["Key"][len(self._prefix) :]
                    # The S3 console marks folders by empty objects.
                    if key and not key.endswith("/"):
                        modified = item["LastModified"].timestamp()
                        yield ObjectInfo(key, item["Size"], item["ETag"], modified)

    def folders(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        whole = self._prefix + prefix
        with self._explained(prefix):
            pages = self._clients.retrying().get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=whole, Delimiter="/"):
                for item in page.get("CommonPrefixes", ()):
                    if name := item["Prefix"][len(whole) : -1]:
                        yield name

    def within(self, path: str) -> S3Store:
        return S3Store(
            self._bucket,
            self._prefix + check_key(path) if path else self._prefix[:-1],
            endpoint_url=self._endpoint_url,
            part_bytes=self._part_bytes,
            encryption=self._encryption,
            shared_with=self,
        )

    def delete(self, key: str) -> None:
        with self._explained(key):
            self._clients.retrying().delete_object(**self._object(key))

    def time(self) -> StoreTime | None:
        unix_ms = self._clients.server_unix_ms()
        return None if unix_ms is None else StoreTime(unix_ms, is_independent=True)

    def list_unfinished(self) -> Iterator[UnfinishedUpload]:
        with self._explained(""):
            lister = self._clients.retrying().get_paginator("list_multipart_uploads")
            for page in lister.paginate(Bucket=self._bucket, Prefix=self._prefix):
                for item in page.get("Uploads", ()):
                    key = item["Key"][len(self._prefix) :]
                    token = f"{item['UploadId']}\n{key}"
                    yield UnfinishedUpload(token, item["Initiated"].timestamp(), key)

    def discard_unfinished(self, upload: UnfinishedUpload) -> None:
        upload_id, _, key = upload.token.partition("\n")
        with contextlib.suppress(UploadGoneError), self._explained(key):
            self._clients.retrying().abort_multipart_upload(**self._object(key), UploadId=upload_id)

    def _read_body(self, key: str, byte_range: str | None, if_match: str | None) -> bytes:
        """Reads a small body, and retries if the connection breaks within it, which the SDK does not."""
        return patiently(
            functools.partial(self._read_body_once, key, byte_range, if_match),
            lambda error: isinstance(error, _BrokenBodyError),
            tries=_BODY_TRIES,
        )

    def _read_body_once(self, key: str, byte_range: str | None, if_match: str | None) -> bytes:
        response = self._get(key, byte_range, if_match)
        body = response["Body"]
        if if_match is not None and response["ETag"] != if_match:  # Some servers ignore If-Match.
            body.close()
            raise ObjectChangedError(f"{self._address(key)}: was replaced while it was read")
        try:
            if byte_range is None:
                check_size(response["ContentLength"], self._address(key))
            data: bytes = body.read()
        except _BODY_ERRORS as error:
            body.close()
            raise _BrokenBodyError(self._address(key), kind_of(error)) from error
        except DataError:
            body.close()
            raise
        return data

    def _get(self, key: str, byte_range: str | None, if_match: str | None) -> Any:
        """Sends a GET and returns the response with its body unread."""
        arguments = self._object(key)
        if byte_range is not None:
            arguments["Range"] = byte_range
        if if_match is not None:
            arguments["IfMatch"] = if_match
        with self._explained(key):
            response = self._clients.retrying().get_object(**arguments)
        if byte_range is not None and response["ResponseMetadata"]["HTTPStatusCode"] != 206:
            # The server ignored the range and would deliver the wrong bytes.
            response["Body"].close()
            raise StoreError(
                f"{self._address(key)}: {self._clients.endpoint()} does not serve ranges of objects"
            )
        return response

    def _object(self, key: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + check_key(key)}

    def _address(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{key}"

    @contextlib.contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        """Turns boto3's errors into store errors with address and advice."""
        address = self._address(key)
        try:
            yield
        except ClientError as error:
            raise refusal(
                address,
                self._clients.endpoint(),
                code=error.response.get("Error", {}).get("Code", ""),
                status=error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0),
            ) from error
        except _NO_CREDENTIALS as error:
            raise PermissionDeniedError(
                f"{address}: no credentials ({kind_of(error)}): set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role"
            ) from error
        except _NOTHING_SENT as error:
            raise StoreUnreachableError(
                f"{address}: cannot connect to {self._clients.endpoint()}: check the network, and "
                "AWS_ENDPOINT_URL if it is set"
            ) from error
        except (BotoConnectionError, HTTPClientError) as error:
            raise LostAnswerError(f"{address}: no answer ({kind_of(error)})") from error
        except BotoCoreError as error:
            raise StoreError(f"{address}: {kind_of(error)}") from error


class _BrokenBodyError(StoreUnreachableError):
    """The connection broke within a body."""

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(broken_body(address, cause))


class S3Stream:
    """The body of one GET; None if it is empty."""

    def __init__(self, body: Any, size_bytes: int, etag: str, address: str) -> None:
        self._body = body
        self._address = address
        self.size_bytes = size_bytes
        self.etag = etag
        self._left = size_bytes

    def read(self, max_bytes: int) -> bytes:
        if not self._left:
            return b""
        try:
            data: bytes = self._body.read(min(max_bytes, self._left))
        except _BODY_ERRORS as error:
            raise _BrokenBodyError(self._address, kind_of(error)) from error
        if not data:
            raise _BrokenBodyError(self._address, still_to_come(self._left))
        self._left -= len(data)
        return data

    def close(self) -> None:
        # Closing an unfinished body drops its connection, which must not return to the pool.
        if self._body is not None:
            self._body.close()


class _Clients:
    """The boto3 clients, created on first use in each process."""

    def __init__(self, endpoint_url: str | None) -> None:
        self._endpoint_url = endpoint_url
        self._process = _Process()

    def retrying(self) -> S3Client:
        """Returns the client for idempotent requests, which the SDK retries."""
        return self._client(tries=_SDK_TRIES)

    def single_try(self) -> S3Client:
        """Returns the client for create-if-absent: a retry by the SDK would turn success into a conflict."""
        return self._client(tries=1)

    def endpoint(self) -> str:
        return self.retrying().meta.endpoint_url

    def sent(self) -> _Sent:
        return self._process.sent

    def server_unix_ms(self) -> int | None:
        return self._process.server_clock.now_unix_ms()

    def _client(self, *, tries: int) -> S3Client:
        process = self._process
        if process.id != os.getpid():
            self._process = process = _Process()
        with process.lock:
            if tries not in process.clients:
                try:
                    process.clients[tries] = self._make(tries)
                except (BotoCoreError, ValueError) as error:
                    raise StoreError(
                        f"S3 is not set up correctly: {kind_of(error)}: check AWS_PROFILE, "
                        "AWS_DEFAULT_REGION and AWS_ENDPOINT_URL"
                    ) from error
            return process.clients[tries]

    def _make(self, tries: int) -> S3Client:
        # The addressing style stays unset: with an endpoint boto3 puts the bucket into the path, as emulators
        # and gateways need, and a profile may choose otherwise.
        config = Config(
            max_pool_connections=_MAX_CONNECTIONS,
            connect_timeout=5,
            read_timeout=60,
            tcp_keepalive=True,
            retries={"mode": "standard", "total_max_attempts": tries},
            # Many servers refuse trailing checksums. These add nothing: the signature covers the SHA-256 of
            # the body, and fragments carry their own checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        # boto3's default session is not thread-safe.
        session = boto3.session.Session()
        region = session.region_name or "us-east-1"
        client: S3Client = session.client(
            "s3", endpoint_url=self._endpoint_url, config=config, region_name=region
        )
        # Nothing would use a secret in it, and every error names the endpoint.
        if not _ENDPOINT.fullmatch(client.meta.endpoint_url):
            raise UsageError(
                "AWS_ENDPOINT_URL has a user or a password in it, or more than host, port and path: set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead"
            )
        client.meta.events.register("request-created.s3", self._process.sent.add)
        client.meta.events.register("response-received.s3", self._process.see_date)
        return client


class _Process:
    """State that a forked child must not share: connections, and a lock that may be held."""

    def __init__(self) -> None:
        self.id = os.getpid()
        self.lock = threading.Lock()
        self.clients: dict[int, S3Client] = {}
        self.sent = _Sent()
        self.server_clock = ServerClock()

    def see_date(self, parsed_response: Mapping[str, Any] | None, **_: Any) -> None:
        metadata = (parsed_response or {}).get("ResponseMetadata", {})
        date = server_date(metadata.get("HTTPHeaders", {}))
        if date is not None:
            self.server_clock.see(date)


class _Sent:
    """Counts requests as they are sent, including the SDK's retries."""

    def __init__(self) -> None:
        self.retries = 0
        self._kinds: Counter[str] = Counter()
        self._lock = threading.Lock()

    def by_kind(self) -> dict[str, int]:
        with self._lock:
            return {kind: self._kinds[kind] for kind in REQUEST_KINDS}

    def add(self, request: Any, operation_name: str, **_: Any) -> None:
        # Listings are GETs in HTTP, but stores bill them at a higher price.
        kind = "list" if operation_name.startswith("List") else request.method.lower()
        is_retry = request.context.get("retries", {}).get("attempt", 1) > 1
        with self._lock:
            self._kinds[kind] += 1
            self.retries += is_retry


def _rebuild(
    bucket: str,
    prefix: str,
    endpoint_url: str | None,
    part_bytes: int,
    encryption: S3Encryption,
) -> S3Store:
    return S3Store(
        bucket, prefix, endpoint_url=endpoint_url, part_bytes=part_bytes, encryption=encryption
    )

"""S3 and what speaks its protocol, by boto3. The only module that imports boto3."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from compactor.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    PermissionDeniedError,
    StoreError,
    StoreUnreachableError,
    UnknownOutcomeError,
)
from compactor.stores.base import ObjectInfo, UploadScope
from compactor.stores.keys import check_key

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MIB: Final = 1 << 20
PART_BYTES: Final = 8 * MIB
_MAX_PARTS: Final = 10_000
_PARTS_IN_FLIGHT: Final = 2
_GROW_EVERY_PARTS: Final = 1_000
"""Part size doubles every so many parts: 10,000 parts then hold 8 TB, more than S3's 5 TiB."""
_MAX_PART_BYTES: Final = 512 * MIB
_READ_TRIES: Final = 4
_MAX_CONNECTIONS: Final = 1_100
"""A merge holds one open GET an input."""

_PERMISSION_CODES: Final = frozenset({
    "AccessDenied", "403", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch",
    "ExpiredToken", "InvalidToken", "AllAccessDisabled",
})  # fmt: skip
_MISSING_CODES: Final = frozenset({"NoSuchKey", "404", "NotFound"})
_BODY_ERRORS: Final = (BotoCoreError, OSError)


class S3Store:
    """Objects of `bucket` under `prefix` ("" or without a trailing slash). Picklable, fork-safe."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint_url: str | None = None,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint_url = endpoint_url
        self._part_bytes = part_bytes
        self._clients = _Clients(endpoint_url)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._bucket, self._prefix[:-1], self._endpoint_url, self._part_bytes)

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> S3Stream:
        arguments: dict[str, Any] = self._object(key)
        if start:
            arguments["Range"] = f"bytes={start}-"
        if if_match is not None:
            arguments["IfMatch"] = if_match
        try:
            with self._explained(key):
                response = self._clients.reads().get_object(**arguments)
        except _EmptyRangeError:
            return S3Stream(None, 0, if_match or "", self._address(key))
        body = response["Body"]
        self._check_partial(key, arguments, response)
        return S3Stream(body, response["ContentLength"], response["ETag"], self._address(key))

    def read_range(
        self, key: str, start: int, length: int, *, if_match: str | None = None
    ) -> bytes:
        if length <= 0:
            return b""
        arguments = self._object(key) | {"Range": f"bytes={start}-{start + length - 1}"}
        if if_match is not None:
            arguments["IfMatch"] = if_match
        try:
            return self._read_body(key, arguments)
        except _EmptyRangeError:
            return b""

    def read(self, key: str) -> bytes:
        return self._read_body(key, self._object(key))

    def head(self, key: str) -> ObjectInfo:
        with self._explained(key):
            response = self._clients.reads().head_object(**self._object(key))
        return ObjectInfo(
            key,
            response["ContentLength"],
            response["ETag"],
            response["LastModified"].timestamp(),
        )

    def create(self, key: str, data: bytes) -> ObjectInfo:
        try:
            with self._explained(key):
                response = self._clients.single_tries().put_object(
                    **self._object(key), Body=data, IfNoneMatch="*"
                )
        except (_ServerFaultError, _NoAnswerError) as error:
            raise UnknownOutcomeError(f"{error} (it may have been written)") from error
        except _PreconditionError:
            raise ObjectExistsError(f"{self._address(key)}: it exists already") from None
        return ObjectInfo(key, len(data), response["ETag"], 0.0)

    def start_upload(self, key: str) -> S3Upload:
        return S3Upload(self, check_key(key), self._part_bytes)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        arguments: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        if start_after is not None:
            arguments["StartAfter"] = self._prefix + start_after
        pages = self._clients.reads().get_paginator("list_objects_v2").paginate(**arguments)
        with self._explained(prefix):
            for page in pages:
                for item in page.get("Contents", ()):
                    yield ObjectInfo(
                        item["Key"][len(self._prefix) :],
                        item["Size"],
                        item["ETag"],
                        item["LastModified"].timestamp(),
                    )

    def delete(self, key: str) -> None:
        with self._explained(key):
            self._clients.reads().delete_object(**self._object(key))

    def _read_body(self, key: str, arguments: dict[str, Any]) -> bytes:
        """A small read, sent again if its connection breaks: the SDK retries only up to the headers."""
        retrying = Retrying(
            retry=retry_if_exception_type(StoreUnreachableError),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            stop=stop_after_attempt(_READ_TRIES),
            reraise=True,
        )
        data: bytes = retrying(self._read_body_once, key, arguments)
        return data

    def _read_body_once(self, key: str, arguments: dict[str, Any]) -> bytes:
        with self._explained(key):
            response = self._clients.reads().get_object(**arguments)
            self._check_partial(key, arguments, response)
            try:
                return response["Body"].read()
            except _BODY_ERRORS as error:
                raise _broken(self._address(key), error) from error

    def _check_partial(self, key: str, arguments: dict[str, Any], response: Any) -> None:
        """A server that ignores Range would hand out other bytes than those asked for."""
        if "Range" in arguments and response["ResponseMetadata"]["HTTPStatusCode"] != 206:
            raise StoreError(
                f"{self._address(key)}: {self._clients.endpoint()} does not serve ranges of objects"
            )

    def _object(self, key: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + check_key(key)}

    def _address(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{key}"

    @contextlib.contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        """Turns boto3's errors into store errors that name the address and what to do."""
        address = self._address(key)
        try:
            yield
        except ClientError as error:
            raise self._from_response(address, error) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise PermissionDeniedError(
                f"{address}: no credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "AWS_PROFILE, or a role"
            ) from error
        except (EndpointConnectionError, ConnectTimeoutError) as error:
            raise StoreUnreachableError(
                f"{address}: cannot connect to {self._clients.endpoint()}: check the network, and "
                "AWS_ENDPOINT_URL if it is set"
            ) from error
        except (BotoConnectionError, HTTPClientError) as error:
            raise _NoAnswerError(
                f"{address}: {self._clients.endpoint()} gave no answer: try again"
            ) from error
        except BotoCoreError as error:
            raise StoreError(f"{address}: {error}") from error

    def _from_response(self, address: str, error: ClientError) -> StoreError | _EmptyRangeError:
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code == "NoSuchBucket":
            return StoreError(
                f"s3://{self._bucket}: no such bucket at {self._clients.endpoint()}: create it, or "
                "correct the address"
            )
        if code in _MISSING_CODES or status == 404:
            return ObjectNotFoundError(f"{address}: no such object")
        if code in _PERMISSION_CODES or status == 403:
            return PermissionDeniedError(
                f"{address}: permission denied ({code}): check the credentials and the bucket's policy"
            )
        if code == "InvalidRange" or status == 416:
            return _EmptyRangeError()
        if code == "PreconditionFailed" or status == 412:
            return _PreconditionError(f"{address}: the object was replaced while it was read")
        if code == "NotImplemented" or status == 501:
            return StoreError(
                f"{address}: {self._clients.endpoint()} does not know this request ({error}); a table "
                "needs a store with conditional writes (If-None-Match)"
            )
        # 409 ConditionalRequestConflict: a concurrent request on the key was in progress; S3 asks
        # to send the request again, so nothing is known of who will have won.
        if status >= 500 or status == 409 or code in ("SlowDown", "RequestTimeout"):
            return _ServerFaultError(f"{address}: the store failed ({code or status}): try again")
        return StoreError(f"{address}: {error}")


class _EmptyRangeError(Exception):
    """The range begins at or past the object's end."""


class _PreconditionError(ObjectChangedError):
    """412: exists already (create) or was replaced (read)."""


class _ServerFaultError(StoreUnreachableError):
    """The server answered that it failed, or asks to come again."""


class _NoAnswerError(StoreUnreachableError):
    """Sent, and then nothing."""


class S3Stream:
    """The body of one GET."""

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
            raise _broken(self._address, error) from error
        if not data:
            raise _broken(self._address, EOFError(f"{self._left} bytes were still to come"))
        self._left -= len(data)
        return data

    def close(self) -> None:
        # An unfinished body must not go back to the pool: closing drops its connection.
        if self._body is not None:
            self._body.close()


class S3Upload(UploadScope):
    """One PUT if all fits into a part, else a multipart upload with two parts in flight.

    Part sizes double every 1,000 parts, up to 512 MiB, so that 10,000 parts hold S3's 5 TiB.
    """

    def __init__(self, store: S3Store, key: str, part_bytes: int) -> None:
        self._store = store
        self._key = key
        self._part_bytes = part_bytes
        self.max_buffered_bytes = part_bytes * (_PARTS_IN_FLIGHT + 1)
        self._buffer = bytearray()
        self._upload_id: str | None = None
        self._parts = 0
        self._sender: ThreadPoolExecutor | None = None
        self._in_flight: deque[Future[None]] = deque()
        self._etags: dict[int, str] = {}
        self._size_bytes = 0
        self._finished = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        self._size_bytes += len(view)
        while len(self._buffer) + len(view) > self._part_bytes:
            room = self._part_bytes - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]
            self._send_part()
        self._buffer += view

    def complete(self) -> ObjectInfo:
        client = self._store._clients.reads()
        target = self._store._object(self._key)
        try:
            if self._upload_id is None:
                with self._store._explained(self._key):
                    response: Any = client.put_object(**target, Body=bytes(self._buffer))
            else:
                if self._buffer:
                    self._send_part()
                self._wait_for_parts(0)
                parts: Any = [
                    {"PartNumber": n, "ETag": etag} for n, etag in sorted(self._etags.items())
                ]
                with self._store._explained(self._key):
                    response = client.complete_multipart_upload(
                        **target, UploadId=self._upload_id, MultipartUpload={"Parts": parts}
                    )
        except (_ServerFaultError, _NoAnswerError) as error:
            raise UnknownOutcomeError(f"{error} (it may have been written)") from error
        self._finished = True
        self._release()
        return ObjectInfo(self._key, self._size_bytes, response["ETag"], 0.0)

    def abort(self) -> None:
        if self._finished:
            return
        self._finished = True
        self._release()
        if self._upload_id is not None:
            # Best effort: what remains of it is for the bucket's lifecycle rule on multiparts.
            with contextlib.suppress(StoreError), self._store._explained(self._key):
                self._store._clients.reads().abort_multipart_upload(
                    **self._store._object(self._key), UploadId=self._upload_id
                )

    def _send_part(self) -> None:
        if self._upload_id is None:
            with self._store._explained(self._key):
                response = self._store._clients.reads().create_multipart_upload(
                    **self._store._object(self._key)
                )
            self._upload_id = response["UploadId"]
            self._sender = ThreadPoolExecutor(_PARTS_IN_FLIGHT, thread_name_prefix="upload")
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise StoreError(f"{self._store._address(self._key)}: more than {_MAX_PARTS} parts")
        assert self._sender is not None
        data, self._buffer = bytes(self._buffer), bytearray()
        self._wait_for_parts(_PARTS_IN_FLIGHT - 1)
        self._in_flight.append(self._sender.submit(self._put_part, self._parts, data))
        if self._parts % _GROW_EVERY_PARTS == 0:
            self._part_bytes = min(2 * self._part_bytes, _MAX_PART_BYTES)
            self.max_buffered_bytes = self._part_bytes * (_PARTS_IN_FLIGHT + 1)

    def _put_part(self, number: int, data: bytes) -> None:
        assert self._upload_id is not None
        with self._store._explained(self._key):
            response = self._store._clients.reads().upload_part(
                **self._store._object(self._key),
                UploadId=self._upload_id,
                PartNumber=number,
                Body=data,
            )
        self._etags[number] = response["ETag"]

    def _wait_for_parts(self, allowed: int) -> None:
        """Waits until at most `allowed` parts are in flight; raises what one of them raised."""
        while len(self._in_flight) > allowed:
            self._in_flight.popleft().result()

    def _release(self) -> None:
        self._buffer = bytearray()
        if self._sender is not None:
            self._sender.shutdown(wait=True, cancel_futures=True)


class _Clients:
    """boto3 clients of this process, made when first used; a forked child makes its own."""

    def __init__(self, endpoint_url: str | None) -> None:
        self._endpoint_url = endpoint_url
        self._lock = threading.Lock()
        self._process = -1
        self._made: dict[int, S3Client] = {}

    def reads(self) -> S3Client:
        """For all requests that may be sent twice without harm: the SDK retries these."""
        return self._client(tries=4)

    def single_tries(self) -> S3Client:
        """For create-if-absent: a retry by the SDK would turn our own success into a conflict."""
        return self._client(tries=1)

    def endpoint(self) -> str:
        return self.reads().meta.endpoint_url

    def _client(self, *, tries: int) -> S3Client:
        with self._lock:
            if self._process != os.getpid():
                self._process, self._made = os.getpid(), {}
            if tries not in self._made:
                try:
                    self._made[tries] = self._make(tries)
                except (BotoCoreError, ValueError) as error:
                    raise StoreError(
                        f"S3 is not set up rightly: {error}: check AWS_PROFILE, AWS_DEFAULT_REGION and "
                        "AWS_ENDPOINT_URL"
                    ) from error
            return self._made[tries]

    def _make(self, tries: int) -> S3Client:
        custom = self._endpoint_url or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get(
            "AWS_ENDPOINT_URL"
        )  # fmt: skip
        config = Config(
            max_pool_connections=_MAX_CONNECTIONS,
            connect_timeout=5,
            read_timeout=60,
            retries={"mode": "standard", "total_max_attempts": tries},
            # Emulators and gateways rarely serve buckets as host names.
            s3={"addressing_style": "path" if custom else "auto"},
            # Fragments carry checksums of their own, and trailing checksums break other servers.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        # A session of its own: boto3's default session is not thread-safe.
        session = boto3.session.Session()
        region = session.region_name or "us-east-1"
        return session.client(
            "s3", endpoint_url=self._endpoint_url, config=config, region_name=region
        )


def _broken(address: str, error: Exception) -> StoreUnreachableError:
    return StoreUnreachableError(f"{address}: the connection broke while reading ({error})")


def _rebuild(bucket: str, prefix: str, endpoint_url: str | None, part_bytes: int) -> S3Store:
    return S3Store(bucket, prefix, endpoint_url=endpoint_url, part_bytes=part_bytes)

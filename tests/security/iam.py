"""IAM policies as S3 goes by them, before each request to the server of the tests.

Moto's own check knows neither resources nor conditions. Actions and what they are asked on are those of
"Actions, resources, and condition keys for Amazon S3" of AWS. Anything in a policy that is
not known here is an error.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from moto.s3.models import s3_backends
from msgspec import Struct, field

from tests.support.s3_server import Request

FOLDER = Path(__file__).parents[2] / "deploy" / "iam"
_DENIED = (
    b"<Error><Code>AccessDenied</Code><Message>User: arn:aws:iam::1:user/x is not authorized</Message>"
    b"</Error>"
)
KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
VIA_S3 = {"kms:ViaService": "s3.us-east-1.amazonaws.com"}
Statement = dict[str, Any]


def load(role: str, **values: str) -> list[Statement]:
    """Statements of a policy file, its variables filled in."""
    text = (FOLDER / f"{role}.json").read_text()
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    assert "${" not in text
    document = json.loads(text)
    assert document["Version"] == "2012-10-17"
    statements: list[Statement] = document["Statement"]
    return statements


def listed(value: Any) -> list[str]:
    return list(value) if isinstance(value, list) else [value]


def without_each(statements: list[Statement]) -> Iterator[tuple[str, list[Statement]]]:
    """The policy without one action on one resource, for each of them."""
    for n, statement in enumerate(statements):
        actions, resources = listed(statement["Action"]), listed(statement["Resource"])
        for action in actions:
            for resource in resources:
                kept = [{**statement, "Action": [a for a in actions if a != action]}]
                kept.append({
                    **statement, "Action": action, "Resource": [r for r in resources if r != resource]
                })  # fmt: skip
                place = re.sub(r"^[^/]*/?", "", resource)
                yield f"{action} {place}", [*statements[:n], *kept, *statements[n + 1 :]]


def is_allowed(
    statements: list[Statement], action: str, resource: str, context: Mapping[str, str]
) -> bool:
    matching = [s for s in statements if _matches(s, action, resource, context)]
    return bool(matching) and all(s["Effect"] == "Allow" for s in matching)


def _matches(s: Statement, action: str, resource: str, context: Mapping[str, str]) -> bool:
    assert s.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}
    return (
        action in listed(s["Action"])
        and any(fnmatch.fnmatchcase(resource, pattern) for pattern in listed(s["Resource"]))
        and all(
            _holds(operator, context.get(key), listed(values))
            for operator, tests in s.get("Condition", {}).items()
            for key, values in tests.items()
        )
    )


def _holds(operator: str, found: str | None, values: list[str]) -> bool:
    match operator:
        case "StringLike":
            return found is not None and any(fnmatch.fnmatchcase(found, v) for v in values)
        case "Null":
            return [str(found is None).lower()] == values
        case _:
            raise AssertionError(f"{operator} is not known here")


def asked_for(request: Request) -> tuple[str, str, dict[str, str]]:
    """Action, resource and context of a request."""
    query = parse_qs(request.query, keep_blank_values=True)
    bucket = f"arn:aws:s3:::{request.bucket}"
    if not request.key:
        if request.method == "GET" and "uploads" in query:
            return "s3:ListBucketMultipartUploads", bucket, {}  # it knows no s3:prefix
        assert request.method == "GET", request
        assert query["list-type"] == ["2"], request
        return "s3:ListBucket", bucket, {"s3:prefix": query["prefix"][0]}
    context = {}
    if "if-none-match" in request.headers:
        context["s3:if-none-match"] = request.headers["if-none-match"]
    match request.method, "uploadId" in query:
        case (("GET" | "HEAD"), False):
            action = "s3:GetObject"
        case ("PUT", _) | ("POST", True):
            action = "s3:PutObject"
        case "POST", False if "uploads" in query:
            action = "s3:PutObject"
        case "DELETE", True:
            action = "s3:AbortMultipartUpload"
        case "DELETE", False:
            action = "s3:DeleteObject"
        case _:
            raise AssertionError(request)
    return action, f"{bucket}/{request.key}", context


def asked_of_key(request: Request) -> str | None:
    """What S3 asks of the key on behalf of the caller, where one encrypts: "Protecting data with server-side
    encryption" of AWS. Parts of an upload are put under the data key that its beginning made."""
    query = parse_qs(request.query, keep_blank_values=True)
    if not request.key or request.method in ("HEAD", "DELETE"):
        return None
    is_read = request.method == "GET" or "uploadId" in query
    return "kms:Decrypt" if is_read else "kms:GenerateDataKey"


class Guard(Struct):
    """An `Intercept`: refuses what the policy does not allow."""

    statements: list[Statement]
    key_statements: list[Statement] | None = None
    """Of the key that encrypts the bucket, if one does."""
    denied: list[str] = field(default_factory=list)

    def __call__(self, request: Request) -> tuple[str, bytes] | None:
        action, resource, context = asked_for(request)
        allowed = is_allowed(self.statements, action, resource, context)
        if allowed and action == "s3:GetObject" and not _is_there(request):
            # S3 says that an object is not there only to who may list the bucket as a whole.
            bucket = resource.partition("/")[0]
            allowed = is_allowed(self.statements, "s3:ListBucket", bucket, {})
        asked = f"{action} {resource}"
        key_action = asked_of_key(request)
        if allowed and self.key_statements is not None and key_action is not None:
            allowed = is_allowed(self.key_statements, key_action, KEY, VIA_S3)
            asked = f"{key_action} {KEY}"
        if allowed:
            return None
        self.denied.append(asked)
        return "403 Forbidden", b"" if request.method == "HEAD" else _DENIED


def _is_there(request: Request) -> bool:
    backend = s3_backends["123456789012"]["aws"]
    return backend.head_object(request.bucket, request.key) is not None

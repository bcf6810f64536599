"""Of errors of servers and network libraries only named fields are shown, and no form of a secret."""

from __future__ import annotations

import base64
import errno
import json
import logging
import socket
import ssl
import string
from collections.abc import Callable, Iterator
from html import escape
from io import StringIO
from urllib.error import HTTPError, URLError
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pytest
import urllib3.exceptions as urllib3
from botocore import exceptions as boto
from hypothesis import given
from hypothesis import strategies as st

from compactor.common.foreign import kind_of, shown, shown_path, shown_traceback
from compactor.common.logs import LogFormat, LogSettings, set_up
from compactor.errors import UsageError, message_of
from compactor.stores.answers import EmptyRangeError
from compactor.stores.s3_answers import refusal

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "percent": lambda text: quote(text, safe=""),
    "form": quote_plus,
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON of escaped slashes": lambda text: json.dumps(text)[1:-1].replace("/", r"\/"),
    "XML": escape,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 behind a user": lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
    "reversed": lambda text: text[::-1],
    "broken over lines": lambda text: f"{text[:9]}\n  {text[9:]}",
}
SECRETS = st.text(string.ascii_letters + string.digits + "+/", min_size=20, max_size=44).map(
    "{}7".format
)
PIECE = 6


def raised_by_a_library(text: str) -> ValueError:
    """Returns an error as `http.client` raises it: of Python's own classes, with a header in it."""
    library: dict[str, object] = {"__name__": "http.client"}
    exec("def put(value):\n    raise ValueError('Invalid header value ' + value)", library)
    try:
        library["put"](text)  # type: ignore[operator]
    except ValueError as error:
        return error
    raise AssertionError


def foreign_errors(text: str) -> Iterator[Exception]:
    header = raised_by_a_library(text)
    yield header
    yield boto.ClientError({"Error": {"Code": text, "Message": text}}, text)
    yield boto.HTTPClientError(error=header)
    yield boto.ProxyConnectionError(proxy_url=f"http://me:{text}@host", error=Exception(text))
    yield boto.EndpointConnectionError(endpoint_url=text, error=OSError(text))
    yield boto.CredentialRetrievalError(provider="process", error_msg=text)
    yield urllib3.ProxyError(text, urllib3.HTTPError(text))
    yield urllib3.ProtocolError(text, ConnectionResetError(errno.ECONNRESET, text))
    yield HTTPError(f"http://me:{text}@host", 400, text, None, None)  # type: ignore[arg-type]
    yield URLError(text)
    yield ssl.SSLError(1, text)
    yield OSError(text)
    yield Exception(text)
    chained = urllib3.HTTPError("outer")
    chained.__cause__ = header
    yield chained


def holds_a_piece(said: str, form: str) -> bool:
    return any(form[at : at + PIECE] in said for at in range(len(form) - PIECE + 1))


@given(secret=SECRETS, name=st.sampled_from(sorted(FORMS)))
def test_no_piece_of_a_secret_in_any_form_is_said_of_a_foreign_error(
    secret: str, name: str
) -> None:
    form = FORMS[name](secret)
    for error in foreign_errors(form):
        told = (shown(error), kind_of(error), str(message_of(error)), shown_traceback(error))
        for said in told:
            assert type(error).__name__ in said
            assert not holds_a_piece(said, form), said


@given(secret=SECRETS, status=st.sampled_from([400, 403, 500, 501]))
def test_no_piece_of_a_secret_is_said_of_a_servers_answer(secret: str, status: int) -> None:
    error = refusal("s3://b/k", "http://host", code=secret, status=status)
    assert not isinstance(error, EmptyRangeError)
    assert not holds_a_piece(str(error), secret)
    assert str(status) in str(error)


@pytest.mark.parametrize("shape", LogFormat)
def test_no_secret_is_logged_with_a_foreign_error(shape: LogFormat) -> None:
    stream = StringIO()
    set_up(LogSettings(shape, "debug"), stream)
    for error in foreign_errors("wJalrXUtnFEMI/K7MDENG"):
        logging.getLogger("compactor.test").error("failed", exc_info=error)
    assert "HTTPClientError" in stream.getvalue()
    assert "wJalr" not in stream.getvalue()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UsageError("--rows: too many"), "UsageError: --rows: too many"),
        (pa.ArrowInvalid("column 3: not a number"), "ArrowInvalid: column 3: not a number"),
        (ConnectionResetError(errno.ECONNRESET, "x"), "ConnectionResetError: Connection reset by peer"),
        (socket.gaierror(-2, "Name or service not known"), "gaierror: Name or service not known"),
        (boto.ConnectionClosedError(endpoint_url="x", error=OSError(errno.EPIPE, "x")),
         "ConnectionClosedError: Broken pipe"),
        (boto.ReadTimeoutError(endpoint_url="x"), "ReadTimeoutError"),
        (KeyError("x"), "KeyError"),
    ],
)  # fmt: skip
def test_the_fields_that_are_shown_say_what_happened(error: Exception, said: str) -> None:
    assert shown(error) == said


def test_of_an_address_given_as_a_path_only_the_scheme_is_shown() -> None:
    assert shown_path("https://me:pw@host/a.csv") == "https://..."
    assert shown_path("/data/t@2/a.csv") == "/data/t@2/a.csv"

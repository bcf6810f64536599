"""A secret comes through in no form, and ordinary text comes through as it is."""

from __future__ import annotations

import base64
import json
import re
import string
from collections.abc import Callable
from html import escape
from urllib.parse import quote, quote_plus, unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compactor.common.redact import HIDDEN, redacted, redacted_value

LETTERS = string.ascii_letters + string.digits
PASSWORDS = st.builds(
    "{}{}{}".format,
    st.text(LETTERS, min_size=8, max_size=12),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.text(LETTERS, min_size=1, max_size=8),
)
"""With letters at the ends, so that what is left of them would be seen."""
AWS_KEYS = st.builds("A{}Z".format, st.text(LETTERS + "+/", min_size=20, max_size=44))
SECRETS = AWS_KEYS | PASSWORDS

ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "percent": lambda text: quote(text, safe=""),
    "percent, lower case": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "percent but slashes": quote,
    "form": quote_plus,
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON of UTF-8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "JSON of escaped slashes": lambda text: json.dumps(text)[1:-1].replace("/", r"\/"),
    "XML": escape,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 of addresses": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 behind a user": lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
    "base64 between others": lambda text: base64.b64encode(f"u:{text}@host".encode()).decode(),
}
"""What may be done again to what was done before."""
AMONG_OTHERS = ("base64 behind a user", "base64 between others")
MAX_BESIDE = len("dXNlcj") + len("Aaa3N0")
LINE_ENDS = ["\n", "\r\n", "\n  ", "\r\n\t", "\\n", " \n "]
BEFORE, AFTER = "cannot sign <", "> for the store"


@st.composite
def encoded(draw: st.DrawFn, secret: str) -> tuple[str, bool]:
    """The secret in a form, and whether others are in it, too."""
    names = draw(st.lists(st.sampled_from(sorted(ENCODINGS)), min_size=1, max_size=3))
    # Of a secret in base64, and not of an escaped secret, there is a form of its own.
    names.sort(key=lambda name: "base64" not in name)
    if sum("base64" in name for name in names) > 1:
        names = names[:1]
    for name in names:
        secret = ENCODINGS[name](secret)
    return secret, names[0] in AMONG_OTHERS


def test_of_base64_that_is_broken_before_its_last_character_nothing_is_left() -> None:
    form = base64.b64encode(b"0" * 28).decode()
    assert form.endswith("MA==")
    broken = f"{form[:37]}\n{form[37:]}"
    assert "A" not in redacted(f"<{broken}>", {"STORE_PWD": "0" * 28})


@given(data=st.data(), secret=SECRETS)
@example(data=None, secret="wJalrXUtnFEMI/K7MDENG+bPxRfiCYcanary")
def test_a_secret_in_any_form_whole_or_split_over_a_line_end_does_not_come_through(
    data: st.DataObject | None, secret: str
) -> None:
    if data is None:
        forms = [form(secret) for form in ENCODINGS.values()]
        is_among_others = True
    else:
        form, is_among_others = data.draw(encoded(secret))
        at = data.draw(st.integers(1, max(1, len(form) - 1)))
        while form[at - 1] == "\\":  # what follows it belongs to it
            at -= 1
        forms = [form, form[:at] + data.draw(st.sampled_from(LINE_ENDS)) + form[at:]]
    for form in forms:
        shown = redacted(BEFORE + form + AFTER, {"STORE_PWD": secret})
        assert shown.startswith(BEFORE), form
        assert shown.endswith(AFTER), form
        rest = shown.removeprefix(BEFORE).removesuffix(AFTER)
        rest = re.sub(r"\s|\\n", "", rest.replace(HIDDEN, "", 1))
        rest = unquote(unquote(unquote(rest))).strip("+=-")
        # What stands beside the secret in base64: a user, a host.
        assert len(rest) <= (MAX_BESIDE if is_among_others else 0), (form, shown)


NAMES = [
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "DB_PASSWORD", "STORE_PWD", "db_pwd", "MY_PASS",
    "PGPASSWORD", "RSYNC_PASSPHRASE", "X_API_KEY", "SIGNING_PRIVATE_KEY", "REGISTRY_CREDENTIAL",
    "HTTP_AUTHORIZATION",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_variable_that_is_called_a_secret_is_one(name: str) -> None:
    assert redacted("the s3cretvalue.", {name: "s3cretvalue"}) == "the ***."


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PWD", "/home/me/work"), ("OLDPWD", "warehouse"), ("USER", "operator1"),
        ("SSH_AUTH_SOCK", "agent1234"), ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token"),
        ("METRICS_PASSWORD_FILE", "relative.txt"),
        ("TOKEN_DIR", "tokens-of-all"), ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1"),
        ("A_TOKEN", "/etc/passwd"), ("B_TOKEN", "short"), ("C_TOKEN", "file:/a/path/x"), ("D_TOKEN", ""),
    ],
)  # fmt: skip
def test_a_variable_that_is_a_place_or_a_short_word_is_none(name: str, value: str) -> None:
    assert redacted(f"at {value}: not found", {name: value}) == f"at {value}: not found"


def test_a_key_that_begins_with_a_slash_is_a_key() -> None:
    assert redacted("<//bPxRfiCYcanary>", {"AWS_SECRET_ACCESS_KEY": "//bPxRfiCYcanary"}) == "<***>"


WORDS = st.text(string.ascii_lowercase + ".,:;()'", min_size=1, max_size=12)


@given(words=st.lists(WORDS, max_size=30), secret=AWS_KEYS)
def test_text_without_the_secret_comes_through_as_it_is(words: list[str], secret: str) -> None:
    text = " ".join(words)
    assert redacted(text, {"A_SECRET": f"A0{secret}"}) == text


@given(text=st.text(max_size=200), secret=SECRETS)
def test_any_text_may_be_given(text: str, secret: str) -> None:
    once = redacted(text, {"A_TOKEN": secret})
    assert redacted(once, {"A_TOKEN": secret}) == once


def test_only_the_secret_is_taken_out_of_a_text_with_escapes() -> None:
    said = 'key "s3cret+va/lue" at C:\\new\\table%20one &amp; more\n  next'
    assert redacted(said, {"A_TOKEN": "s3cret+va/lue"}) == said.replace("s3cret+va/lue", HIDDEN)


def test_secrets_that_overlap_leave_nothing() -> None:
    secrets = {"A_TOKEN": "abcdefgh-12", "B_TOKEN": "gh-12345678", "C_TOKEN": "cdefgh-1"}
    assert redacted("<abcdefgh-12345678>", secrets) == "<***>"


HEADERS = [
    ("Authorization: Bearer abc.DEF-123\r\nHost: b", "Authorization: Bearer ***\r\nHost: b"),
    ("Authorization: Basic dXNlcjpw\r\n  YXNz\r\nHost: b", "Authorization: Basic ***\r\nHost: b"),
    ("authorization: basic dXNlcjpw\nYXNz\nHost: b", "authorization: basic ***\nHost: b"),
    ("Proxy-Authorization: tok3n refused", "Proxy-Authorization: *** refused"),
    ("Authorization: AWS4-HMAC-SHA256 Credential=AKIA/2026/us/s3/aws4_request, SignedHeaders=host;x-amz-date,"
     " Signature=ab12cd was sent", "Authorization: AWS4-HMAC-SHA256 *** was sent"),
    ('Authorization: Digest username="M", realm="a b", response="66"; gone',
     "Authorization: Digest ***; gone"),
    ("{'Authorization': 'Basic dXNlcg==', 'Host': 'b'}", "{'Authorization': '***', 'Host': 'b'}"),
    ("{b'authorization': b'Basic dXNlcg=='}", "{b'authorization': b'***'}"),
    ("('Authorization', 'Basic dXNlcg==')", "('Authorization', '***')"),
    ('{"a": "{\\"Authorization\\": \\"Bearer x y\\"}"}', '{"a": "{\\"Authorization\\": \\"***\\"}"}'),
    ("authorization=Bearer%20t0ken,b=1", "authorization=***,b=1"),
    ("X-Amz-Security-Token: FwoGZX/abc==\nx: 1", "X-Amz-Security-Token: ***\nx: 1"),
    ("x-api-key:12ab", "x-api-key:***"),
    ("sent 'Bearer eyJhbGciOi.J9' to it", "sent 'Bearer ***' to it"),
    ("x?next=http%3A%2F%2Fme%3Ap%40w%40host%2Fx&c=d", "x?next=http%3A%2F%2F***%40host%2Fx&c=d"),
    (r'{"url": "http:\/\/me:pw@host\/x"}', r'{"url": "http:\/\/***@host\/x"}'),
    ("x%3FX-Amz-Signature%3Dab12%26X-Amz-Date%3D1", "x%3FX-Amz-Signature%3D***%26X-Amz-Date%3D1"),
    (r"a?b=1\u0026password=hidden\u0026c=2", r"a?b=1\u0026password=***\u0026c=2"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "shown"), HEADERS)
def test_what_authorizes_a_request_is_hidden(text: str, shown: str) -> None:
    assert redacted(text, {}) == shown


@pytest.mark.parametrize(
    "text",
    [
        "authorization: denied for this user",
        "no authorization, and no token: ask for one",
        "the header Authorization is missing",
        "a basic understanding of bearer tokens",
        "basic internationalization",
        "pre-authorization: X1",
        "see http%3A%2F%2Fhost%2Fa%40b",
        "http://host:9000/authorization",
    ],
)
def test_words_that_sound_like_it_stay(text: str) -> None:
    assert redacted(text, {}) == text


def test_a_header_in_a_value_of_json_is_hidden_by_its_name() -> None:
    shown = redacted_value({"headers": {"Authorization": ["Bearer x"], "Host": "b"}, 1: "a"})
    assert shown == {"headers": {"Authorization": HIDDEN, "Host": "b"}, 1: "a"}

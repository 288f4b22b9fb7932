from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from msnb.regression.hidden import HIDDEN, Hidden, is_secret


@pytest.mark.parametrize(
    "name",
    [
        *("password", "DB_PASSWORD", "db_pwd", "passphrase", "client_secret", "HF_TOKEN", "token"),
        *("apiKey", "API_KEY", "api-key", "aws_access_key_id", "private_key", "SESSION_COOKIE"),
        *("auth", "AUTH_HEADER", "GITHUB_PAT", "credentials", "SIGNING_KEY", "SENTRY_DSN"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("tokens", "max_tokens", "tokenizer", "GIT_AUTHOR_NAME", "author", "PWD", "OLDPWD"),
        *("key", "keys", "monkey", "path", "epochs", "device_target", "pattern"),
    ],
)
def test_other_names(name: str) -> None:
    assert not is_secret(name)


def test_a_value_is_hidden_however_it_is_written() -> None:
    value = "se\"c'ret<量>\n\\x"
    hidden = Hidden({"token": value}, {})
    for form in (value, repr(value), json.dumps(value), quote(value, safe="")):
        assert hidden.in_text(f"a {form} b").strip("'\"").replace("'", "").replace('"', "") == (
            f"a {HIDDEN} b"
        )
    assert hidden.in_json({"k": [value, {value: 1}], "n": 3, "t": (True, None)}) == {
        "k": [HIDDEN, {HIDDEN: 1}],
        "n": 3,
        "t": [True, None],
    }


def test_the_longer_of_two_is_hidden_whole() -> None:
    assert Hidden({"a_token": "abcd", "b_token": "abcdefgh"}, {}).in_text("abcdefgh") == HIDDEN


def test_values_within_values() -> None:
    hidden = Hidden({"tokens_by_host": 1, "token": [{"x": "first"}, ["second", 123456, True]]}, {})
    assert hidden.in_text("first second 123456 True") == f"{HIDDEN} {HIDDEN} {HIDDEN} True"


def test_of_the_environment_secrets_and_passwords_in_addresses(tmp_path: object) -> None:
    hidden = Hidden(
        {},
        {
            "MY_TOKEN": "tokentext",
            "HTTPS_PROXY": "http://me:passw0rd@proxy:1",
            "HOME": "/home/somebody",
            "A_TOKEN": "short",
            "KEY_FILE_SECRET": str(tmp_path),
        },
    )
    text = f"tokentext passw0rd /home/somebody short {tmp_path}"
    assert hidden.in_text(text) == f"{HIDDEN} {HIDDEN} /home/somebody short {tmp_path}"


def test_a_short_value_is_hidden_where_it_is_assigned() -> None:
    values = {"pin_secret": 7, "token": "", "auth": None, "epochs": 3}
    hidden = Hidden(values, {})
    assert hidden.in_parameters(values) == {**values, "pin_secret": HIDDEN}
    source = "pin_secret = 7\nepochs = 3\ntoken: str = 'x'  # why"
    assert (
        hidden.in_source(source) == "pin_secret = '(hidden)'\nepochs = 3\ntoken: str = '(hidden)'"
    )
    assert hidden.in_text("7") == "7"


def test_nothing_to_hide() -> None:
    hidden = Hidden({"epochs": 3}, {})
    assert hidden.in_text("as it is") == "as it is"

"""Text that leaves the machine: names of users and hosts, addresses, secrets, home folders out."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping

# What a variable's name says of its value.
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|APIKEY|(?:API|ACCESS|PRIVATE|AUTH|SSH).?KEY|COOKIE"
    r"|_PAT$|_KEY$|_AUTH$|_PWD$|^PGPASS|DSN$",
    re.IGNORECASE,
)
# What stands before a secret: name=, "name":, --name; and in a header the scheme.
_NAMES = r"token|secret|passw\w*|pwd|auth\w*|(?:api|access|secret|private|account)[_-]?key"
_SCHEMES = r"(?:basic|bearer|digest|negotiate)"
# Forms that services give to their tokens, by their own documentation of the prefixes.
_TOKENS = (
    r"hf_[A-Za-z0-9]{16,}",
    r"gh[pousr]_[A-Za-z0-9]{20,}",
    r"github_pat_\w{20,}",
    r"glpat-[\w-]{16,}",
    r"sk-[\w-]{16,}",
    r"xox[abprs]-[\w-]{10,}",
    r"AKIA[0-9A-Z]{16}",
    r"AIza[\w-]{30,}",
    r"pypi-[\w-]{30,}",
    r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",  # a JSON Web Token
    r"[0-9a-fA-F]{32,}",
    r"[A-Za-z0-9+/_-]{40,}={0,2}",
)
_LOCAL = ("127.0.0.1", "0.0.0.0", "::1", "::")
_KNOWN_HOSTS = r"(?:www\.)?(?:mindspore\.cn|hiascend\.com|github\.com)"


def scrubbed(
    text: str,
    *,
    environment: Mapping[str, str] | None = None,
    home: str | None = None,
    hosts: tuple[str, ...] | None = None,
) -> str:
    """``text`` without user names, home folders, hosts, addresses, tokens and values of secrets.

    ``environment``, ``home`` and ``hosts`` are this process's and machine's unless given. A word is
    rather lost than told: what looks like a secret is replaced.

    >>> scrubbed("ssh lin@10.1.2.3", environment={"USER": "lin"}, home="/home/lin", hosts=())
    'ssh <address>'
    """
    variables = os.environ if environment is None else environment
    home = home or os.path.expanduser("~")
    named = _hosts() if hosts is None else hosts
    for value in _secret_values(variables):
        text = text.replace(value, "<secret>")
    header = (
        rf"""(?i)\b(bearer\s+|authorization["']?\s*[:=]\s*["']?{_SCHEMES}\s+)(?!<)[\w.~+/=-]+"""
    )
    text = re.sub(header, r"\1<secret>", text)
    # a password may hold a slash: who wrote the address forgot to encode it
    text = re.sub(r"(?i)(\w+://)[^\s/@:]*:[^\s@'\"]{0,200}@", r"\1<secret>@", text)
    text = re.sub(
        rf"""(?i)\b((?:[\w-]{{0,40}}[_-])?(?:{_NAMES})\b["']?\s*[=:]\s*)(?!["']?(?:<|{_SCHEMES}\s))"""
        r"""("[^"\n]*"|'[^'\n]*'|[^\s"',]+)""",
        r"\1<secret>",
        text,
    )
    option = rf"(?i)(?<!\S)(--?(?:[\w-]{{0,40}}-)?(?:{_NAMES})\s+)(?![<-])[^\s\"',]+"
    text = re.sub(option, r"\1<secret>", text)
    text = re.sub(
        r"(?i)([?&][\w-]{0,40}(?:sig|signature|key)=)(?!<)[^\s&\"']+", r"\1<secret>", text
    )
    text = _paths(text, home)
    for pattern in _TOKENS[:-1]:
        text = re.sub(rf"(?<![\w/]){pattern}(?![\w/])", "<token>", text)
    text = re.sub(
        rf"(?<![\w/.-]){_TOKENS[-1]}(?![\w/])",
        lambda found: "<token>" if _random_looking(found[0]) else found[0],
        text,
    )
    text = re.sub(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*", "<address>", text)
    url = rf"(?i)(\w+://(?:<secret>@)?)(?!<|{_KNOWN_HOSTS}\b)[^\s/:'\"]+"
    text = re.sub(url, r"\1<host>", text)
    text = re.sub(r"(?i)\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", "<address>", text)
    text = re.sub(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)", _address, text)
    text = re.sub(r"(?<![\w:])[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?![\w:])", _address, text)
    for name in sorted(named, key=len, reverse=True):
        text = re.sub(rf"(?i)(?<![\w-]){re.escape(name)}(?:\.[\w.-]*\w)?(?![\w-])", "<host>", text)
    for name in sorted(_users(variables, home), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "<user>", text)
    return text


def _paths(text: str, home: str) -> str:
    homes = {home.rstrip("/"), os.path.realpath(home).rstrip("/")} - {""}
    for folder in sorted(homes, key=len, reverse=True):
        text = re.sub(rf"{re.escape(folder)}(?![\w.-])", "~", text)
    return re.sub(r"(/home/|/Users/|/data/home/)(?!<)[^/\s:'\",)]+", r"\1<user>", text)


def _secret_values(variables: Mapping[str, str]) -> list[str]:
    values = [
        value for name, value in variables.items() if _SECRET_NAME.search(name) and len(value) >= 4
    ]
    return sorted(set(values), key=len, reverse=True)


def _random_looking(word: str) -> bool:
    """A long word with digits, capitals and small letters; a path has more slashes."""
    kinds = (r"\d", "[A-Z]", "[a-z]")
    return all(re.search(kind, word) for kind in kinds) and word.count("/") < len(word) / 12


def _address(found: re.Match[str]) -> str:
    word = found[0]
    try:
        ipaddress.ip_address(word.strip("."))
    except ValueError:
        return word
    return word if word in _LOCAL else "<address>"


def _users(variables: Mapping[str, str], home: str) -> set[str]:
    names = {variables.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")}
    names.add(os.path.basename(home.rstrip("/")))
    return {name for name in names if len(name) > 1 and name != "root"}


def _hosts() -> tuple[str, ...]:
    names = {socket.gethostname(), os.uname().nodename if hasattr(os, "uname") else ""}
    names |= {name.partition(".")[0] for name in names}
    return tuple(name for name in names if len(name) > 1 and name != "localhost")

"""Passwords, tokens and keys: known by their names, and kept out of everything a run writes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

HIDDEN = "(hidden)"

_NAME = re.compile(
    r"passw|passphrase|_pwd$|secret|token(?![a-z])|credential|cookie|auth(?!or)"
    r"|(api|access|private|secret|ssh|signing|encryption|auth)[_-]?key|_key$|_pat$|^pgpass|dsn$",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_SHORTEST = {"parameter": 4, "environment": 6}  # anything shorter is in every second text


def is_secret(name: str) -> bool:
    """Whether ``name`` is one under which people keep a password, token or key.

    >>> is_secret("HF_TOKEN"), is_secret("max_tokens"), is_secret("GIT_AUTHOR_NAME")
    (True, False, False)
    """
    return _NAME.search(name) is not None


class Hidden:
    """The values to hide: of ``parameters`` and of the ``environment`` whose name is a secret's.

    ``in_text`` and ``in_json`` replace each, also as it is written in Python, JSON, HTML and a web
    address, by ``(hidden)``. Values below 4 characters (environment: 6) are hidden only where they
    are assigned. Encodings beyond these, such as base64, are not recognised.

    >>> Hidden({"password": "s3cret"}, {}).in_text("the s3cret")
    'the (hidden)'
    """

    def __init__(
        self, parameters: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> None:
        self.names = {name for name in parameters if is_secret(name)}
        found: set[str] = set()
        for name in self.names:
            found |= _texts([parameters[name]], _SHORTEST["parameter"])
        surroundings = os.environ if environment is None else environment
        for name, value in surroundings.items():
            where = value.startswith("/") and os.path.exists(value)  # of a file that holds one
            own = [value] if is_secret(name) and not where else _IN_URL.findall(value)
            found |= _texts(own, _SHORTEST["environment"])
        forms = {form for value in found for form in _forms(value)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def in_text(self, text: str) -> str:
        return self._pattern.sub(HIDDEN, text) if self._pattern else text

    def in_json(self, value: Any) -> Any:
        """``value``, made of plain JSON values, with every text in it cleared."""
        if isinstance(value, str):
            return self.in_text(value)
        if isinstance(value, Mapping):
            return {self.in_text(str(key)): self.in_json(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.in_json(inner) for inner in value]
        return value

    def in_parameters(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """``values`` with those of secret names replaced, an empty or absent one apart."""
        return {
            name: HIDDEN if name in self.names and value not in (None, "") else self.in_json(value)
            for name, value in values.items()
        }

    def in_source(self, source: str) -> str:
        """A parameters cell with the values of secret names replaced, however short."""
        for name in self.names:
            source = re.sub(
                rf"^({re.escape(name)}\s*(?::[^=\n]+)?=\s*).+$",
                lambda found: f"{found[1]}{HIDDEN!r}",
                source,
                flags=re.MULTILINE,
            )
        return self.in_text(source)


def _texts(values: Iterable[Any], shortest: int) -> set[str]:
    texts: set[str] = set()
    for value in values:
        if isinstance(value, Mapping):
            texts |= _texts(value.values(), shortest)
        elif isinstance(value, (list, tuple)):
            texts |= _texts(value, shortest)
        elif value is not None and not isinstance(value, bool) and len(str(value)) >= shortest:
            texts |= {str(value)} if str(value).strip() else set()
    return texts


def _forms(value: str) -> set[str]:
    import html

    return {
        value,
        repr(value)[1:-1],
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        html.escape(value),
        quote(value, safe=""),
    }

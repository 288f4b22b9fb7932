"""The table of known errors, read from ``kinds/*.yaml`` and checked entry by entry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from importlib import resources
from typing import Any

_QUOTES = re.compile(r"['\"`‘’“”]+")
_MANY = re.compile(r"(\\[wSd]|(?<!\\)\[[^]]*\])\+")  # without a bound a long line takes forever
_GROUP = re.compile(r"\((?P<kind>\?P<\w+>|\?[:=!])?(?P<inside>[^()]*)\)")
_ESCAPED = re.compile(r"\\\W")
_WILD = re.compile(r"\[[^]]*\]|\\[a-zA-Z]|\{\d*,?\d*\}|[.*+?()|^$]")
SHORTEST = 6  # characters a pattern says literally; a shorter one would match by accident


@dataclass(frozen=True)
class Kind:
    """One kind of error.

    ``patterns`` are regular expressions over text without quotation marks, in any case; a space in
    them is any whitespace or none. ``means`` is a sentence, ``causes`` come in order of likelihood,
    ``type`` is what to type, ``section`` the notebook's number and heading, ``versions`` where the
    message was seen, ``blames`` says so where the message names the wrong thing. ``message`` is a
    recorded example and ``source`` where it is from; ``example`` is code that produces it, run
    after ``import mindspore as ms, numpy as np`` and ``from mindspore import mint, nn, ops``;
    ``process`` is ``shared``, or ``own`` where it spoils its process. ``neighbour`` is a text
    nearby that must not match. ``{name}`` in a sentence stands for the group of that name in the
    pattern.
    """

    id: str
    topic: str
    patterns: tuple[str, ...]
    means: str
    causes: tuple[str, ...]
    type: str
    message: str
    neighbour: str
    versions: str
    section: str = ""
    blames: str = ""
    source: str = ""
    example: str = ""
    process: str = "shared"

    @cached_property
    def compiled(self) -> tuple[tuple[re.Pattern[str], int], ...]:
        """The patterns for ``unquoted`` text, with how many characters each says literally."""
        return self._compiled(" ?")

    @cached_property
    def compiled_squeezed(self) -> tuple[tuple[re.Pattern[str], int], ...]:
        """The same for ``squeezed`` text."""
        return self._compiled("")

    def _compiled(self, space: str) -> tuple[tuple[re.Pattern[str], int], ...]:
        found = []
        for pattern in self.patterns:
            bare = re.sub(r"\s+", space, _QUOTES.sub("", pattern))
            bounded = _MANY.sub(r"\1{1,80}", bare)
            found.append((re.compile(bounded, re.IGNORECASE), _literal(squeezed(pattern))))
        return tuple(found)


def _literal(pattern: str) -> int:
    """How many characters a pattern says literally, of alternatives the shortest."""
    text = _ESCAPED.sub("x", pattern)
    while _GROUP.search(text):
        text = _GROUP.sub(_shortest, text)
    return len(_WILD.sub("", text))


def _shortest(group: re.Match[str]) -> str:
    if group["kind"] in ("?!", "?="):
        return ""
    return min(group["inside"].split("|"), key=lambda text: len(_WILD.sub("", text)))


def unquoted(text: str) -> str:
    """Text without quotation marks, in which a line break is a space."""
    return re.sub(r"\s+", " ", _QUOTES.sub("", text))


def squeezed(text: str) -> str:
    """Text without quotation marks and whitespace: a line may break in a word."""
    return re.sub(r"\s+", "", _QUOTES.sub("", text))


@cache
def kinds() -> Mapping[str, Kind]:
    """All known kinds by id; ``ValueError`` names the entry that is wrong, and how."""
    folder = resources.files("msnb.hints") / "kinds"
    found: dict[str, Kind] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".yaml"):
            continue
        for kind in read(file.read_text(encoding="utf-8"), file.name):
            if kind.id in found:
                raise ValueError(f"{file.name}: there are two entries called {kind.id}")
            found[kind.id] = kind
    return found


def read(text: str, name: str) -> list[Kind]:
    """The entries of one file; ``ValueError`` for one that is not as ``Kind`` says."""
    import yaml  # type: ignore[import-untyped]

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        records = yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        raise ValueError(f"{name}: not YAML: {error}") from None
    if not isinstance(records, list):
        raise ValueError(f"{name}: a list of entries is expected, each beginning with '- id: '")
    topic = name.removesuffix(".yaml")
    return [_kind(record, topic, name) for record in records]


def _kind(record: Any, topic: str, name: str) -> Kind:
    if not isinstance(record, dict) or not isinstance(record.get("id"), str):
        raise ValueError(f"{name}: an entry begins with '- id: ' and a name, not {record!r:.80}")
    where = f"{name}: {record['id']}"
    given = {**record, "patterns": record.get("pattern")}
    given.pop("pattern", None)
    known = {field.name for field in fields(Kind)} - {"topic"}
    if unknown := sorted(set(given) - known):
        raise ValueError(f"{where}: no such field: {', '.join(unknown)}")
    for field in ("patterns", "causes"):
        value = given[field] = given.get(field) or ()
        given[field] = (value,) if isinstance(value, str) else tuple(value)
        if not given[field] or not all(isinstance(item, str) and item for item in given[field]):
            raise ValueError(f"{where}: {field.removesuffix('s')} is a text, or a list of texts")
    for field in known - {"patterns", "causes"}:
        value = given.get(field, "shared" if field == "process" else "")
        if not isinstance(value, str):
            raise ValueError(f"{where}: {field} is a text, not {value!r}; quote it")
        given[field] = value.strip()
    needed = ("means", "type", "message", "neighbour", "versions")
    if missing := [field for field in needed if not given[field]]:
        raise ValueError(f"{where}: {', '.join(missing)} missing")
    if not given["example"] and not given["source"]:
        raise ValueError(f"{where}: either example (code) or source (of the message) is needed")
    if given["process"] not in ("shared", "own"):
        raise ValueError(f"{where}: process is shared or own, not {given['process']}")
    kind = Kind(topic=topic, **given)
    try:
        shortest = min(literal for _, literal in kind.compiled)
    except re.error as error:
        raise ValueError(f"{where}: pattern is no regular expression: {error}") from None
    if shortest < SHORTEST:
        raise ValueError(f"{where}: a pattern that says {shortest} characters matches by accident")
    return kind

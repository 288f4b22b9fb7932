"""Which known kind a text is, or which it resembles."""

from __future__ import annotations

import html
import math
import re
import traceback
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

from msnb.hints.table import Kind, kinds, squeezed, unquoted
from msnb.report import Check, Report

LIMIT = 200_000  # characters; a log has its error at the end
_SHOWN = 3  # kinds in one Report
_BROKEN = 20_000  # characters searched for lines that were broken in the middle of words
_ELSEWHERE = 0.6  # what a match counts that is not in the last exception

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_WRITTEN = re.compile(r"\\+(?:[nrt](?![a-z])|(?=['\"]))")  # \n and \' as repr and JSON write them
_MARGIN = re.compile(r"^[ \t]*(?:E[ \t]{2,}|(?:[>|│┃]+[ \t]?)+)", re.MULTILINE)  # pytest, quotes
_HEAD = re.compile(
    r"^[ \t]*(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Warning|Failed|Exit|Kernel"
    r"|Unavailable)(?=:|[ \t]*$)",
    re.MULTILINE,
)
_WORD = re.compile(r"[A-Za-z_]\w+|\d{5,}")


@dataclass(frozen=True)
class Hint:
    """A known kind as found in a text: ``line`` is where, the sentences have its names filled in.

    In a notebook it shows itself as a small box, elsewhere as a few lines.
    """

    kind: Kind
    line: str
    means: str
    causes: tuple[str, ...]
    type: str
    score: float

    def to_check(self) -> Check:
        """This hint as a line of a Report."""
        return Check(
            self.kind.id,
            "failed",
            "\n".join([self.means, *self._details()]),
            found=self.line,
            remedy=self.type,
        )

    def _details(self) -> list[str]:
        details = []
        if self.kind.blames:
            details.append(f"beware: {self.kind.blames}")
        if len(self.causes) == 1:
            details.append(f"because {self.causes[0]}")
        else:
            details += [f"{n}. {cause}" for n, cause in enumerate(self.causes, 1)]
        if self.kind.section:
            details.append(f"see notebook {self.kind.section}")
        return [*details, f"seen with {self.kind.versions}"]

    def __str__(self) -> str:
        lines = [f"hint: {self.means}", *(f"  {detail}" for detail in self._details())]
        first, *more = self.type.splitlines()
        return "\n".join([*lines, f"  type: {first}", *(f"        {line}" for line in more)])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        details = "".join(f"<div>{html.escape(detail)}</div>" for detail in self._details())
        return {
            "text/plain": str(self),
            "text/html": (
                '<div style="border-left:4px solid #d29922;padding-left:.8em;margin:.4em 0">'
                f"<b>hint: {html.escape(self.means)}</b>{details}"
                f'<pre style="margin:.3em 0">{html.escape(self.type)}</pre></div>'
            ),
        }


def explain(text: str | BaseException) -> Report:
    """What an error means and what to type.

    ``text`` is a message, a traceback or a piece of a log, pasted as it is (line breaks, colours,
    paths and numbers do not count), or the exception itself. The Report's first Check is the kind
    that fits best, the last exception counting most; up to two more follow. Where none fits, the
    three nearest are there as skipped Checks, marked as guesses, under one that says so.

    Raises ``TypeError`` for anything else than text or an exception, ``ValueError`` for a text that
    is empty, binary or longer than 200,000 characters.

    >>> explain("RuntimeError: Unsupported statement 'Try'.").checks[0].id
    'graph-try'
    """
    if found := find(text):
        return Report("explain", [hint.to_check() for hint in found])
    unknown = Check(
        "unknown",
        "error",
        f"this text is none of the {len(kinds())} known kinds",
        remedy="look at the last line of the traceback, and run msnb doctor",
    )
    return Report("explain", [unknown, *map(_guess, _nearest(_checked(text)))])


def find(text: str | BaseException) -> list[Hint]:
    """The kinds that fit a text, at most three, the best first; raises as ``explain`` does."""
    return _found(_checked(text))[:_SHOWN]


def best(text: str | BaseException) -> Hint | None:
    """The kind that fits best, or ``None`` where none does; never raises for a text.

    >>> best("ValueError: The amp level O4 is not supported").kind.id
    'amp-level'
    """
    if isinstance(text, BaseException):
        text = _formatted(text)
    found = _found(text[-LIMIT:])
    return found[0] if found else None


def _checked(text: object) -> str:
    if isinstance(text, BaseException):
        return _formatted(text)[-LIMIT:]
    if not isinstance(text, str):
        what = "bytes: decode them first" if isinstance(text, bytes) else type(text).__name__
        raise TypeError(f"explain takes the text of an error, or an exception, not {what}")
    if not plain(text).strip():
        raise ValueError("there is no text to explain: paste the error's message or its traceback")
    if "\x00" in text:
        raise ValueError("this is no text but binary data: give the error's message")
    if len(text) > LIMIT:
        raise ValueError(
            f"{len(text):,} characters are too many to explain (limit {LIMIT:,}): give the end, "
            "as in: tail -n 200 FILE | msnb explain"
        )
    return text


def _formatted(error: BaseException | None) -> str:
    """The messages of an exception and of those that led to it, without lines of source code."""
    texts: list[str] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        texts.append("".join(traceback.format_exception_only(type(error), error)))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(reversed(texts))


def plain(text: str) -> str:
    """Text without colours and other control sequences, and without margins of quoting."""
    return _MARGIN.sub("", _WRITTEN.sub(" ", _ESCAPES.sub("", text)).replace("\r", "\n"))


def _last(text: str) -> str:
    """From the head of the last exception on; all where there is no head."""
    starts = [match.start() for match in _HEAD.finditer(text)]
    return text[starts[-1] :] if starts else text


def _found(text: str) -> list[Hint]:
    """The kinds in a text, the best first."""
    shown = plain(text)
    last = _last(shown)
    found = _matched(shown, unquoted(last), unquoted(shown), "compiled")
    if not found:  # lines that were broken in the middle of words
        last, whole = (squeezed(part[-_BROKEN:]) for part in (last, shown))
        found = _matched(shown, last, whole, "compiled_squeezed")
    return sorted(found, key=lambda hint: -hint.score)


def _matched(shown: str, last: str, whole: str, form: str) -> list[Hint]:
    places = [(1.0, last)] if last == whole else [(1.0, last), (_ELSEWHERE, whole)]
    found = []
    for kind in kinds().values():
        matches = [
            (literal * weight, match)
            for pattern, literal in getattr(kind, form)
            for weight, place in places
            if (match := pattern.search(place))
        ]
        if matches:
            score, match = max(matches, key=lambda scored: scored[0])
            found.append(_hint(kind, match, score, shown))
    return found


def _hint(kind: Kind, match: re.Match[str], score: float, text: str) -> Hint:
    names = {name: value or "it" for name, value in match.groupdict().items()}

    def filled(sentence: str) -> str:
        for name, value in names.items():
            sentence = sentence.replace(f"{{{name}}}", value)
        return sentence

    return Hint(
        kind,
        _line(match[0], text),
        filled(kind.means),
        tuple(map(filled, kind.causes)),
        filled(kind.type),
        score,
    )


def _line(matched: str, text: str) -> str:
    """The last line of the text in which such a match begins, shortened."""
    start = squeezed(matched)
    for size in (40, 24, 12, 6):
        for line in reversed(text.splitlines()):  # source lines come before the message
            if start[:size] in squeezed(line):
                return line.strip()[:400]
    return matched[:400]


# Guesses


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


@cache
def _vocabulary() -> tuple[dict[str, set[str]], dict[str, float]]:
    """The words of each kind's recorded message, and how telling each word is."""
    words = {kind.id: _words(f"{kind.message} {kind.means}") for kind in kinds().values()}
    counts = Counter(word for known in words.values() for word in known)
    return words, {word: math.log(1 + len(words) / count) for word, count in counts.items()}


def _nearest(text: str) -> list[Kind]:
    """The three kinds whose messages share most words with the text's last exception."""
    asked = _words(_last(plain(text))[:5000])
    words, weights = _vocabulary()

    def weight(of: set[str]) -> float:
        return sum(weights.get(word, 1.0) for word in of)

    scores = {
        id: weight(asked & known) / math.sqrt(weight(asked) * weight(known))
        for id, known in words.items()
        if asked & known
    }
    order = sorted(scores, key=lambda id: -scores[id])[:3]
    return [kinds()[id] for id in order]


def _guess(kind: Kind) -> Check:
    example = _found(kind.message)[0]  # its sentences with the example's names
    said = next(line for line in kind.message.splitlines() if line.strip())[:120]
    return Check(
        kind.id,
        "skipped",
        f"a guess: {example.means}\nfor instance: {said}",
        remedy=example.type,
    )

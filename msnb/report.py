"""The one result type: a ``Report`` of ``Check`` s.

Standard library only, and nothing of ours: the doctor must be able to report from an environment in
which everything else is broken.
"""

from __future__ import annotations

import html
import math
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Status = Literal["ok", "skipped", "error", "failed"]

STATUSES: tuple[Status, ...] = get_args(Status)  # from harmless to worst
MIME = "application/vnd.msnb.report+json"
SCHEMA = 1

_SIGN = {"ok": "ok", "skipped": "skipped", "error": "ERROR", "failed": "FAILED"}
_ANSI = {"ok": "32", "skipped": "2", "error": "35;1", "failed": "31;1"}
_COLOUR = {"ok": "#2da44e", "skipped": "#8b949e", "error": "#a371f7", "failed": "#e5534b"}


@dataclass(frozen=True)
class Check:
    """One judged fact.

    ``status`` is ``ok``, ``failed``, ``error`` (could not be decided) or ``skipped`` (``summary``
    then holds the reason). ``summary`` holds the numbers and the limit, ``remedy`` what to type,
    ``metrics`` maps a name to a number.

    Raises ``ValueError`` for an empty id, an unknown status or a skip without a reason, and
    ``TypeError`` for a metric that is not a number.

    >>> Check("conv1", "ok", "max |difference| 2.4e-07, limit 3.1e-06").status
    'ok'
    """

    id: str
    status: Status
    summary: str = ""
    found: str = ""
    expected: str = ""
    remedy: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise TypeError(f"the id of a Check is the name of what was checked, not {self.id!r}")
        if not self.id.strip():
            raise ValueError("a Check needs an id: the name of what was checked")
        if self.status not in STATUSES:
            raise ValueError(
                f"Check {self.id!r}: status is one of {', '.join(STATUSES)}, not {self.status!r}"
            )
        if not isinstance(self.metrics, Mapping):
            raise TypeError(
                f"Check {self.id!r}: metrics maps names to numbers, not {self.metrics!r}"
            )
        if self.status == "skipped" and not str(self.summary or "").strip():
            raise ValueError(f"Check {self.id!r}: a skipped check gives its reason in summary")
        for name in ("summary", "found", "expected", "remedy"):
            object.__setattr__(self, name, str(getattr(self, name)))
        numbers: dict[str, float] = {}
        for name, value in self.metrics.items():
            try:
                number = float(value)
                numbers[str(name)] = value if type(value) in (int, float) else number
            except (TypeError, ValueError, OverflowError):
                raise TypeError(
                    f"Check {self.id!r}: metric {name!r} is a number, not {value!r}"
                ) from None
        object.__setattr__(self, "metrics", numbers)

    def __bool__(self) -> bool:
        return self.status == "ok"

    def to_json(self) -> dict[str, Any]:
        """The Check as plain JSON values; NaN and infinities become strings."""
        record = {
            name: getattr(self, name)
            for name in ("id", "status", "summary", "found", "expected", "remedy")
        }
        metrics = {
            name: value if math.isfinite(value) else str(float(value))
            for name, value in self.metrics.items()
        }
        return {**record, "metrics": metrics}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Check:
        """The Check that ``to_json`` wrote."""
        metrics = {name: float(value) for name, value in record.get("metrics", {}).items()}
        return cls(**{**record, "metrics": metrics})


class ReportFailed(AssertionError):
    """A required Report is not ok; ``report`` holds it, the message shows its table."""

    def __init__(self, report: Report) -> None:
        super().__init__(f"required, but not ok\n{report}")
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        return (ReportFailed, (self.report,))


class Report:
    """Checks under a title; it shows itself in a notebook, in a terminal and as JSON.

    ``items`` are Checks, or Reports whose Checks are taken over under ``title: id``. One that
    proves nothing, being empty or all skipped, adds an ``error`` row under its title: a Report is
    never ok with one in it that is not. What is skipped on purpose is a skipped Check.

    ``plot``, where given, draws the finding (``report.plot()``) and returns a matplotlib figure.

    A Report is a finding, good or bad, until ``require()`` makes it a verdict.

    Raises ``ValueError`` where two checks have the same id.

    >>> report = Report("sum", [Check("2 + 2", "ok", "4")])
    >>> report.worst, report["2 + 2"].summary
    ('ok', '4')
    >>> print(report)
    sum: ok (1 ok)
      ok  2 + 2  4
    """

    def __init__(
        self,
        title: str,
        items: Iterable[Check | Report] = (),
        *,
        plot: Callable[[], Any] | None = None,
    ) -> None:
        self.title = title
        self._plot = plot
        checks: dict[str, Check] = {}
        if isinstance(items, (Check, str)) or not isinstance(items, Iterable):
            raise TypeError(
                f"Report {title!r} is made of a list of Checks and Reports, "
                f"not {type(items).__name__}"
            )
        for item in items:
            for check in item._under_title() if isinstance(item, Report) else (item,):
                if not isinstance(check, Check):
                    raise TypeError(
                        f"Report {title!r} is made of Checks and Reports, "
                        f"not {type(check).__name__}"
                    )
                if check.id in checks:
                    raise ValueError(f"Report {title!r} has two checks called {check.id!r}")
                checks[check.id] = check
        self._checks = checks

    def _under_title(self) -> Iterator[Check]:
        if self.worst == "skipped" and not any(self):
            count = len(self._checks)
            said = f"nothing was proved: all of {count} skipped" if count else "nothing was checked"
            yield Check(self.title, "error", said)
        for check in self:
            yield Check(**{**check.__dict__, "id": f"{self.title}: {check.id}"})

    @property
    def checks(self) -> tuple[Check, ...]:
        return tuple(self._checks.values())

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __len__(self) -> int:
        return len(self._checks)

    def __getitem__(self, id: str) -> Check:
        try:
            return self._checks[id]
        except KeyError:
            raise KeyError(
                f"Report {self.title!r} has no check {id!r}; it has {', '.join(self._checks)}"
            ) from None

    def __contains__(self, id: object) -> bool:
        return id in self._checks

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Report):
            return NotImplemented
        return (self.title, self.checks) == (other.title, other.checks)

    __hash__ = None  # type: ignore[assignment]

    @property
    def worst(self) -> Status:
        """The worst status among the checks: failed, then error, then skipped, then ok."""
        return max((check.status for check in self), key=STATUSES.index, default="skipped")

    @property
    def ok(self) -> bool:
        """Whether something was checked, and nothing of it failed or could not be decided.

        A skipped check does not spoil a Report; one in which all are skipped proves nothing and is
        not ok.
        """
        statuses = {check.status for check in self}
        return "ok" in statuses and not statuses & {"failed", "error"}

    def __bool__(self) -> bool:
        return self.ok

    def require(self) -> None:
        """Make this Report a verdict: show it, and raise ``ReportFailed`` unless it is ok."""
        _display(self._bundle(required=True))
        if not self.ok:
            raise ReportFailed(self)

    def plot(self) -> Any:
        """Draw the finding; ``ValueError`` where this Report has nothing to draw."""
        if self._plot is None:
            raise ValueError(f"Report {self.title!r} has nothing to draw")
        return self._plot()

    def headline(self) -> str:
        """Title, worst status and counts in one line."""
        if not self._checks:
            return f"{self.title}: nothing was checked"
        counts = [
            f"{count} {status}"
            for status in reversed(STATUSES)
            if (count := sum(check.status == status for check in self))
        ]
        verdict = "ok" if self.ok else _SIGN[self.worst]
        return f"{self.title}: {verdict} ({', '.join(counts)})"

    def text(self, *, width: int = 100, colour: bool = False) -> str:
        """The table as plain text, ``width`` columns wide; ``colour`` adds ANSI colours."""
        sign = max((_width(_SIGN[check.status]) for check in self), default=0)
        name = min(max((_width(check.id) for check in self), default=0), 36)
        lines = [self.headline()]
        for check in self:
            head = _pad(_SIGN[check.status], sign)
            if colour:
                head = f"\x1b[{_ANSI[check.status]}m{head}\x1b[0m"
            left = f"  {head}  {_pad(check.id, name)}  "
            indent = " " * (sign + name + 6)
            room = max(width - len(indent), 40)
            if _width(check.id) > name:  # a long name stands alone
                lines.append(left.rstrip())
                left = indent
            body = _wrap(check.summary or check.found, room)
            if _adds(check):
                body += _labelled("found", check.found, room)
            if not check and check.status != "skipped" and check.expected:
                body += _labelled("expected", check.expected, room)
            if not check and check.remedy:
                body += _labelled("type", check.remedy, room)
            lines.append(f"{left}{body[0]}".rstrip())
            lines += [f"{indent}{line}".rstrip() for line in body[1:]]
        return "\n".join(lines)

    __str__ = text

    def __repr__(self) -> str:
        return f"<Report {self.headline()}>"

    def to_json(self) -> dict[str, Any]:
        """The Report as plain JSON values, with the version of the schema."""
        return {
            "schema": SCHEMA,
            "title": self.title,
            "status": self.worst,
            "ok": self.ok,
            "checks": [check.to_json() for check in self],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Report:
        """The Report that ``to_json`` wrote; ``ValueError`` for another schema."""
        if record.get("schema") != SCHEMA:
            raise ValueError(
                f"this msnb reads reports of schema {SCHEMA}, not {record.get('schema')!r}; "
                "use the msnb that wrote it"
            )
        return cls(record["title"], [Check.from_json(check) for check in record["checks"]])

    def _repr_html_(self) -> str:
        rows = "".join(_html_row(check) for check in self)
        state = "ok" if self.ok else self.worst
        return (
            f'<div style="border-left:4px solid {_COLOUR[state]};padding-left:.8em;margin:.4em 0">'
            f"<b>{html.escape(self.headline())}</b>"
            '<table style="margin:.4em 0"><thead><tr>'
            + "".join(
                f'<th style="text-align:left">{name}</th>'
                for name in ("", "check", "summary", "expected", "what to type")
            )
            + f"</tr></thead><tbody>{rows}</tbody></table></div>"
        )

    def _bundle(self, *, required: bool = False) -> dict[str, Any]:
        return {
            "text/plain": self.text(),
            "text/html": self._repr_html_(),
            MIME: {**self.to_json(), "required": required},
        }

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return self._bundle()


def _display(bundle: dict[str, Any]) -> None:
    """Show in a running Jupyter kernel; elsewhere the raised error is the only output."""
    core = sys.modules.get("IPython.core.getipython")
    shell = core.get_ipython() if core else None
    if shell is not None and getattr(shell, "kernel", None) is not None:
        from IPython.display import display

        display(bundle, raw=True)


def _adds(check: Check) -> bool:
    """Whether what was found tells more than the summary; nobody asks where all is well."""
    return bool(not check and check.summary and check.found) and check.found not in check.summary


def _html_row(check: Check) -> str:
    def cell(text: str, style: str = "") -> str:
        shown = html.escape(text).replace("\n", "<br>")
        return f'<td style="text-align:left;vertical-align:top;{style}">{shown}</td>'

    summary = check.summary or check.found
    if _adds(check):
        summary += f"\nfound: {check.found}"
    settled = check.status in ("ok", "skipped")
    return (
        "<tr>"
        + cell(_SIGN[check.status], f"color:{_COLOUR[check.status]};font-weight:bold")
        + cell(check.id)
        + cell(summary)
        + cell("" if settled else check.expected)
        + cell("" if check else check.remedy, "font-family:monospace")
        + "</tr>"
    )


def _width(text: str) -> int:
    """Columns on a terminal: Chinese characters take two."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _pad(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _wrap(text: str, width: int) -> list[str]:
    lines = []
    for line in text.splitlines() or [""]:
        indent = " " * (len(line) - len(line.lstrip()))
        lines += textwrap.wrap(
            line,
            width,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        ) or [""]
    return lines


def _labelled(label: str, text: str, width: int) -> list[str]:
    head, *rest = _wrap(text, width - 10)
    return [f"{label:<8}  {head}", *(f"{'':<8}  {line}" for line in rest)]

"""``report.html``: one file, no network, failures first, each with its cell, error and figures.

All that a notebook emits is text to this page: jinja2 escapes it, a figure has to be a PNG, and the
page's own policy lets no script run but the one that sorts and filters.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from msnb.regression import moved, results
from msnb.regression.results import NotebookResult, Results
from msnb.report import MIME

FILE = "report.html"

_ORDER = ("failed", "error", "skipped", "ok")
_PNG = b"\x89PNG\r\n\x1a\n"
_FIGURE = 4_000_000  # characters of base64; a larger one would make the page slow to open
_TAIL = 15  # lines of the failing cell's own output
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\ud800-\udfff]")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# IPython begins a frame with one of these; a frame of a library lies in one of those folders.
_FRAME = re.compile(r"^(?:Cell In ?\[\d+\]|File )")
_LIBRARY = re.compile(
    r"[/\\](?:site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python3[.\d]*[/\\]"
    r"|[/\\]msnb[/\\](?:\w+[/\\])*\w+\.py|<frozen |<string>"
)


def write(found: Results, folder: Path) -> Path:
    """Write the page of the run in ``folder``; returns its path."""
    path = folder / FILE
    results.write_whole(path, render(found, folder))
    return path


def render(found: Results, folder: Path) -> str:
    """The page of ``found``; the executed notebooks in ``folder`` give cells and figures."""
    from jinja2 import Environment, StrictUndefined

    package = resources.files("msnb.regression")
    script = (package / "report.js").read_text(encoding="utf-8").strip()
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: _printable(value) if type(value) is str else value,
    )
    environment.filters["number"] = _number
    surroundings: dict[str, Any] = {"revision": "", "dirty": None, "versions": {}, "facts": {}}
    surroundings.update(found.environment)
    template = environment.from_string((package / "report.html.jinja").read_text("utf-8"))
    order = sorted(
        range(len(found.notebooks)), key=lambda n: (_ORDER.index(found.notebooks[n].verdict), n)
    )
    longest = max((result.seconds for result in found.notebooks), default=0) or 1
    counts = {
        verdict: count
        for verdict in _ORDER
        if (count := sum(result.verdict == verdict for result in found.notebooks))
    }
    return template.render(
        run=found,
        environment=surroundings,
        headline=_headline(found, counts),
        state="ok" if found.ok else next(iter(counts), "error"),
        counts=counts,
        notebooks=[_notebook(found.notebooks[n], folder, longest) for n in order],
        facts=_facts(surroundings),
        script=_Trusted(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


class _Trusted(str):
    """Our own script, which is not to be escaped."""

    def __html__(self) -> str:
        return str(self)


def users_frames(traceback: str) -> str:
    """An IPython traceback without the frames of libraries; a line says how many went.

    The frames of cells and of the user's own files stay, and what stands before and after them.
    A traceback in which there is nothing else stays whole.
    """
    lines = _ANSI.sub("", traceback).splitlines()
    if lines and not lines[0].strip("-"):
        lines = lines[1:]  # a rule across the cell
    starts = [n for n, line in enumerate(lines) if _FRAME.match(line)]
    if not any(not _is_library(lines[n]) for n in starts):
        return "\n".join(lines)
    kept: list[str] = []
    dropped = 0
    dropping = False
    for n, line in enumerate(lines):
        if n in starts:
            dropping = _is_library(line)
            dropped += dropping
        elif dropping and _ends_frame(lines, n):
            dropping = False
        if dropping:
            continue
        if dropped:
            kept.append(f"  … {dropped} frame{'s' * (dropped > 1)} of libraries")
            dropped = 0
        kept.append(line)
    if dropped:
        kept.append(f"  … {dropped} frame{'s' * (dropped > 1)} of libraries")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip("\n")


def _is_library(line: str) -> bool:
    return line.startswith("File ") and _LIBRARY.search(line) is not None


def _ends_frame(lines: list[str], n: int) -> bool:
    """Whether the last frame ended before line ``n``: after a blank line no source line follows."""
    if n == 0 or lines[n - 1].strip():
        return False
    return not re.match(r"\s*(?:-+> ?)?\s*\d+(?:\s|$)|\s", lines[n]) and bool(lines[n].strip())


def _notebook(result: NotebookResult, folder: Path, longest: float) -> dict[str, Any]:
    document = _document(result, folder)
    return {
        "result": result,
        "share": round(100 * result.seconds / longest, 1),
        "checks": sum(len(judged.report["checks"]) for judged in result.required),
        "open": result.verdict != "ok",
        "hint": str(result.hint() or ""),
        "failing": _failing(result, document),
        "traceback": users_frames((result.error or {}).get("traceback", "")),
        "exhibits": _exhibits(result, document),
        "phases": [(name, seconds) for name, seconds in result.phases.items()],
    }


def _document(result: NotebookResult, folder: Path) -> Mapping[str, Any]:
    """The executed notebook; an empty one where it is gone or was torn."""
    empty: Mapping[str, Any] = {"cells": []}
    if not result.executed or Path(result.executed).name != result.executed:
        return empty
    try:
        found = json.loads((folder / result.executed).read_text(encoding="utf-8"))
        results.numbered(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return empty
    return found if isinstance(found, Mapping) else empty


def _failing(result: NotebookResult, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The failing cell with its source and the end of what it printed."""
    if result.cell is None:
        return None
    source, printed = str(result.cell["line"]), ""
    for number, cell in results.numbered(document):
        if number == result.cell["number"]:
            source = _joined(cell["source"])
            texts = [
                _joined(output.get("text", ""))
                for output in cell.get("outputs", ())
                if output.get("output_type") == "stream"
            ]
            lines = _ANSI.sub("", "".join(texts))[-20_000:].rstrip().splitlines()
            cut = ["…"] * (len(lines) > _TAIL)
            printed = "\n".join(line[:500] for line in cut + lines[-_TAIL:])
    return {"number": result.cell["number"], "source": source, "printed": printed}


def _exhibits(result: NotebookResult, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Cell by cell the Reports it showed, beside the figures that it and those after it drew."""
    cells: dict[int, dict[str, Any]] = {}

    def at(number: int) -> dict[str, Any]:
        return cells.setdefault(number, {"number": number, "reports": [], "figures": []})

    for required, all_judged in ((True, result.required), (False, result.findings)):
        for judged in all_judged:
            checks = [_check(check) for check in judged.report["checks"]]
            at(judged.number)["reports"].append(
                {
                    "title": judged.report["title"],
                    "status": "ok" if judged.report["ok"] else judged.report["status"],
                    "required": required,
                    "checks": checks,
                }
            )
    with_reports = sorted(cells)
    for number, cell in results.numbered(document):
        for output in cell.get("outputs", ()):
            data = output.get("data") or {}
            if MIME not in data and (figure := _png(data.get("image/png"))):
                before = [shown for shown in with_reports if shown <= number]
                beside = before[-1] if before else number
                at(beside)["figures"].append({"number": number, "address": figure})
    return [cells[number] for number in sorted(cells)]


def _check(check: Mapping[str, Any]) -> dict[str, Any]:
    metrics = [
        (name, value, moved.limit_of(name, check["metrics"]), moved.direction(name))
        for name, value in check["metrics"].items()
        if name != "limit" and not name.endswith("_band")  # for baselines: one for each number
    ]
    return {**check, "numbers": metrics}


def _png(encoded: Any) -> str | None:
    """A figure as an address that holds it; ``None`` for what is no PNG or too large."""
    text = "".join(_joined(encoded).split()) if isinstance(encoded, (str, list)) else ""
    if not 0 < len(text) <= _FIGURE:
        return None
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not content.startswith(_PNG):
        return None
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _headline(found: Results, counts: Mapping[str, int]) -> str:
    total = len(found.notebooks)
    if not found.complete:
        ran = sum(result.decided for result in found.notebooks)
        return f"interrupted: {ran} of {total} notebooks ran to a verdict"
    if set(counts) == {"ok"}:
        return f"all {total} notebooks ok" if total > 1 else "1 notebook ok"
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def _facts(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in environment.items():
        if name in ("facts", "versions"):
            continue
        if name == "memory" and isinstance(value, int):
            value = f"{value / 1e9:.1f} GB"
        rows.append((name, "unknown" if value in (None, "") else str(value)))
    versions = environment["versions"] if isinstance(environment["versions"], Mapping) else {}
    rows += [(name, str(version) or "absent") for name, version in versions.items()]
    known = {name for name, _ in rows}
    stable = moved.facts({}, moved.stable(environment.get("facts", {})))
    rows += [
        (change.where, change.after)
        for change in stable
        if change.after != "none" and change.where.rsplit(".", 1)[-1] not in known
    ]
    return rows


def _joined(text: Any) -> str:
    return text if isinstance(text, str) else "".join(map(str, text))


def _printable(text: str) -> str:
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def _number(value: Any) -> str:
    return f"{float(value):.4g}"

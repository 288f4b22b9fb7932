"""The matrix: what passed on which version of MindSpore and which device, when, by what evidence.

A folder of evidence holds one or more of these files: ``results.json`` (as ``msnb run`` writes it),
``notebooks.json`` (a baseline), and ``differences.json`` (``msnb differences --all --json``; id,
status and summary of its checks suffice). Rows are notebooks, models and topics of recorded
differences; columns are versions and devices. Where two folders tell of the same cell, the later
one counts. Nothing is inferred: what no folder tells of was not run.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from msnb import differences
from msnb.regression import baseline
from msnb.regression.models import MODELS
from msnb.regression.results import Results, write_whole
from msnb.report import Report

FILES = ("results.json", "notebooks.json", "differences.json")
DEVICES = ("CPU", "Ascend", "GPU")
_SAID: dict[str, str] = {
    "ok": "passed",
    "failed": "failed",
    "skipped": "skipped",
    "error": "undecided",
}

Column = tuple[str, str]  # version, device


@dataclass(frozen=True)
class Cell:
    """What one column says of one row; ``said`` is passed, failed, skipped, undecided, not run."""

    said: str = "not run"
    reason: str = ""
    when: str = ""
    evidence: str = ""


@dataclass
class Evidence:
    """What one file tells: of a notebook by its name, of a difference by its id."""

    column: Column
    when: str
    path: Path
    notebooks: dict[str, tuple[str, str]] = field(default_factory=dict)
    differences: dict[str, tuple[str, str]] = field(default_factory=dict)


def look(folder: Path) -> list[Evidence]:
    """The evidence in ``folder``; ``ValueError`` with one sentence where there is none to use."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: name the folder of a run")
    found = [folder / name for name in FILES if (folder / name).is_file()]
    if not found:
        raise ValueError(f"{folder} holds none of {', '.join(FILES)}")
    if len({path.name for path in found} & set(FILES[:2])) == 2:
        found.remove(folder / "notebooks.json")  # made of the results beside it
    return [_read(path) for path in found]


def _read(path: Path) -> Evidence:
    if path.name == "results.json":
        results = Results.read(path)
        version = _version(path, (results.environment.get("versions") or {}).get("mindspore"))
        notebooks: dict[str, tuple[str, str]] = {}
        for result in results.notebooks:
            if (ran := _own_word(result.findings)) not in ("", version):
                raise ValueError(
                    f"{path} is of MindSpore {version}, but {result.notebook} ran with {ran}"
                )
            notebooks[result.notebook] = (
                result.verdict,
                "" if result.verdict == "ok" else baseline.without_paths(result.reason),
            )
        return Evidence((version, results.device), results.started, path, notebooks)
    if path.name == "notebooks.json":
        record = baseline.read(path)
        notebooks = {
            name: (entry["verdict"], str(entry.get("reason", "")))
            for name, entry in record["notebooks"].items()
        }
        version = _version(path, record["versions"]["mindspore"])
        return Evidence((version, record["device"]), record["started"], path, notebooks)
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        report = Report.from_json(told)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is not what msnb differences --all --json prints: {error}"
        ) from None
    if told.get("device") not in DEVICES:
        raise ValueError(f"{path} does not say on which of {', '.join(DEVICES)} it was made")
    version = _version(path, told.get("mindspore"))
    seen: dict[str, tuple[str, str]] = {c.id: (c.status, c.summary) for c in report}
    return Evidence((version, told["device"]), str(told.get("started", "")), path, {}, seen)


def _own_word(findings: Iterable[Any]) -> str:
    """The version that a notebook said it ran with, in the Report of its set-up."""
    for judged in findings:
        if judged.report["title"] == "context":
            for check in judged.report["checks"]:
                if check["id"] == "MindSpore":
                    return str(check["found"] or check["summary"]).partition(" ")[0]
    return ""


def _version(path: Path, told: Any) -> str:
    try:
        return str(Version(str(told)))
    except InvalidVersion:
        raise ValueError(f"{path} does not say with which MindSpore it was made") from None


@dataclass
class Matrix:
    """All evidence, laid out: columns, and for each row its cells in the order of the columns."""

    columns: list[Column]
    notebooks: dict[str, list[Cell]]
    topics: dict[str, list[Cell]]

    def models(self) -> dict[str, list[Cell]]:
        """A model passed where the notebook that trains or checks it passed."""
        nothing = [Cell() for _ in self.columns]
        return {model.name: self.notebooks.get(model.notebook, nothing) for model in MODELS}


def lay_out(evidence: Sequence[Evidence], names: Iterable[str], base: Path) -> Matrix:
    """The matrix of ``evidence`` for the notebooks ``names`` and every topic.

    Links to evidence are relative to ``base``, the folder of the page.
    """
    seen = {item.column for item in evidence}
    newest = max((version for version, _ in seen), key=Version, default="")
    seen |= {(newest, device) for device in DEVICES if newest}
    columns = sorted(seen, key=lambda c: (DEVICES.index(c[1]), Version(c[0])))
    told = {name: None for item in evidence for name in item.notebooks}
    notebooks = {
        name: [_latest(evidence, column, name, base) for column in columns]
        for name in sorted({*names, *told})
    }
    topics = {
        topic: [_topic(evidence, column, topic, base) for column in columns]
        for topic in differences.topics()
    }
    return Matrix(columns, notebooks, topics)


def _latest(evidence: Sequence[Evidence], column: Column, name: str, base: Path) -> Cell:
    those = [item for item in evidence if item.column == column and name in item.notebooks]
    if not those:
        return Cell()
    last = max(those, key=lambda item: item.when)
    verdict, reason = last.notebooks[name]
    return Cell(_SAID[verdict], reason, last.when[:10], _link(last.path, base))


def _topic(evidence: Sequence[Evidence], column: Column, topic: str, base: Path) -> Cell:
    those = [
        item
        for item in evidence
        if item.column == column and any(id.startswith(f"{topic}.") for id in item.differences)
    ]
    if not those:
        return Cell()
    last = max(those, key=lambda item: item.when)
    own = {id: seen for id, seen in last.differences.items() if id.startswith(f"{topic}.")}
    by: dict[str, list[str]] = {}
    for id, (status, _) in own.items():
        by.setdefault(status, []).append(id)
    worst = next((status for status in ("failed", "error") if status in by), "ok")
    if worst == "ok" and "ok" not in by:
        worst = "skipped"
    count = f"{len(by.get('ok', ()))} of {len(own)}"
    reasons = [
        f"{id} {_SAID[status]}: {own[id][1]}"
        for status in ("failed", "error", "skipped")
        for id in by.get(status, ())
    ]
    said = _SAID[worst]
    said = said if worst == "ok" and len(by["ok"]) == len(own) else f"{said}, {count}"
    return Cell(said, " ".join(reasons), last.when[:10], _link(last.path, base))


def _link(path: Path, base: Path) -> str:
    return Path(os.path.relpath(path.resolve(), base.resolve())).as_posix()


# --- what changed --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cause:
    """Why a notebook's verdict is another from a version on: difference ids, or a reproduction."""

    notebook: str
    since: str
    why: str


# Found by running the failing cell alone with both versions.
CAUSES: tuple[Cause, ...] = (
    Cause(
        "03_padding_probes",
        "2.8.0",
        "`ops.ones((np.int64(2), 3), ms.float32)` raises TypeError: Failed calling Ones in 2.7.2; "
        "from 2.8.0 on a NumPy integer is taken in a shape",
    ),
    Cause(
        "08_mindir_export",
        "2.8.0",
        "compiled, `y = x * 1; y.add_(1); return y` gives x in 2.7.2, as PyNative does, and x + 1 "
        "from 2.8.0 on",
    ),
    Cause(
        "06_amp",
        "2.9.0",
        "bfloat16 on CPU: `x = ms.Tensor([1.0]).astype(ms.bfloat16); x * x` is [1] from 2.9.0 on, "
        "and raises TypeError: Select CPU operator[Mul] fail! in 2.8.0 and 2.7.2; so do `x / x` "
        "and `-x`",
    ),
    Cause(
        "05_graph_mode_switch",
        "2.8.0",
        "three of its idioms. Exported, branches that give float16 and float32 raise TypeError: "
        "Cannot join the return values of different branches in 2.7.2 only. Compiled, `y = x + 0` "
        "is a copy in 2.7.2 only (graph.plus-zero), and `y = x * 1; y.add_(1); return y` gives x "
        "in 2.7.2, as PyNative does, and x + 1 from 2.8.0 on",
    ),
)


def changes(matrix: Matrix) -> list[tuple[Column, Column, list[str]]]:
    """For each two neighbouring versions on one device, what is another in the later one."""
    found = []
    for older, newer in zip(matrix.columns, matrix.columns[1:], strict=False):
        if older[1] != newer[1]:
            continue
        at = matrix.columns.index(older)
        lines = [
            f"`{one.id}`: {one.statement} Before: {one.before}"
            for one in differences.changed(older[0], newer[0])
        ]
        for name, cells in matrix.notebooks.items():
            was, now = cells[at], cells[at + 1]
            if "not run" in (was.said, now.said) or was.said == now.said:
                continue
            why = next(
                (
                    c.why
                    for c in CAUSES
                    if (c.notebook, Version(c.since)) == (name, Version(newer[0]))
                ),
                "cause unknown",
            )
            told = now.reason or was.reason
            lines.append(f"`{name}`: {was.said} before, {now.said} now ({told}). Why: {why}.")
        found.append((older, newer, lines))
    return found


# --- the pages -----------------------------------------------------------------------------------

_TITLE = "What passed where"
_INTRO = (
    "Written by `msnb report --matrix` from the files that the cells link to. Add yours: "
    "`msnb run --out baselines/ascend-2.10.0 --device-target Ascend`, then "
    "`msnb report --matrix`."
)


def markdown(matrix: Matrix) -> str:
    """The page docs/matrix.md."""
    notes: list[str] = []
    heads = [f"{device} {version}" for version, device in matrix.columns]
    lines = [f"# {_TITLE}", "", _INTRO]

    def table(title: str, first: list[str], rows: Mapping[str, list[Cell]], more: Any) -> None:
        lines.extend(["", f"## {title}", ""])
        lines.append("| " + " | ".join([*first, *heads]) + " |")
        lines.append("|" + "---|" * (len(first) + len(heads)))
        for name, cells in rows.items():
            shown = [_escaped(text) for text in (name, *more(name))]
            shown += [_markdown(cell, notes) for cell in cells]
            lines.append("| " + " | ".join(shown) + " |")

    table("Notebooks", ["notebook"], matrix.notebooks, lambda name: ())
    known = {model.name: model for model in MODELS}
    table(
        "Models",
        ["model", "notebook", "operators in its exported graph", "loss", "optimizer", "parallel"],
        matrix.models(),
        lambda name: known[name].told(),
    )
    described = differences.topics()
    table(
        "Recorded differences, by topic",
        ["topic", "about"],
        matrix.topics,
        lambda topic: (described[topic].rstrip("."),),
    )
    if notes:
        lines += ["", "## Notes", ""]
        lines += [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    lines += ["", "## What changed between versions"]
    for older, newer, told in changes(matrix):
        lines += ["", f"### {older[1]}: {older[0]} to {newer[0]}", ""]
        lines += [f"- {_no_tags(line)}" for line in told] or ["Nothing that was looked at."]
    return "\n".join(lines) + "\n"


def _markdown(cell: Cell, notes: list[str]) -> str:
    if cell.said == "not run":
        return "not run"
    text = f"[{cell.said}]({cell.evidence.replace(' ', '%20')}) {cell.when}".rstrip()
    if cell.reason:
        note = _escaped(cell.reason)
        if note not in notes:
            notes.append(note)
        text += f" (note {notes.index(note) + 1})"
    return text


def _escaped(text: str) -> str:
    return _no_tags(text.replace("|", "\\|").replace("\n", " "))


def _no_tags(text: str) -> str:
    """``text`` in which ``<class ...>`` is no HTML."""
    return re.sub(r"<(?=[a-zA-Z/!])", "&lt;", text)


_STYLE = """body{font:15px/1.5 system-ui,"Noto Sans CJK SC",sans-serif;margin:1.5rem auto;
max-width:80rem;padding:0 1rem;color:#1d2430;background:#fff}table{border-collapse:collapse}
th,td{text-align:left;vertical-align:top;padding:.25rem .6rem;border-top:1px solid #dde2e9}
.scroll{overflow-x:auto}.passed{color:#1a7f37}.failed{color:#c62828;font-weight:650}
.undecided{color:#8250df}.skipped,.not{color:#6e7781}small{color:#5b6675;display:block}
.when{white-space:nowrap}
@media(prefers-color-scheme:dark){body{color:#e4e8ee;background:#11151b}th,td{border-color:#2d3642}
.passed{color:#4cc46a}.failed{color:#ff7b72}a{color:#6db3ff}}"""


def page(matrix: Matrix) -> str:
    """The same as one HTML file, without scripts and without the network."""
    esc = html.escape
    out = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">",
        f"<title>{_TITLE}</title><style>{_STYLE}</style></head><body><h1>{_TITLE}</h1>",
    ]
    known = {model.name: model for model in MODELS}
    described = differences.topics()
    heads = "".join(f"<th>{esc(device)} {esc(v)}</th>" for v, device in matrix.columns)
    abouts = {
        name: "; ".join(part for part in model.told() if part != "none")
        for name, model in known.items()
    }
    for title, rows, about in (
        ("Notebooks", matrix.notebooks, {}),
        ("Models", matrix.models(), abouts),
        ("Recorded differences, by topic", matrix.topics, described),
    ):
        out.append(f'<h2>{title}</h2><div class="scroll"><table><tr><th></th>{heads}</tr>')
        for name, cells in rows.items():
            said = f"<small>{esc(about[name])}</small>" if name in about else ""
            shown = "".join(_html(cell) for cell in cells)
            out.append(f"<tr><th>{esc(name)}{said}</th>{shown}</tr>")
        out.append("</table></div>")
    out.append("<h2>What changed between versions</h2>")
    for older, newer, told in changes(matrix):
        out.append(f"<h3>{esc(older[1])}: {esc(older[0])} to {esc(newer[0])}</h3><ul>")
        out += [f"<li>{esc(line)}</li>" for line in told or ["Nothing that was looked at."]]
        out.append("</ul>")
    return "\n".join([*out, "</body></html>"]) + "\n"


def _html(cell: Cell) -> str:
    esc = html.escape
    kind = cell.said.partition(" ")[0].rstrip(",")
    text = esc(cell.said)
    if cell.evidence:
        text = f'<a class="{kind}" href="{esc(cell.evidence.replace(" ", "%20"))}">{text}</a>'
    return (
        f'<td class="{kind}">{text}<small class="when">{esc(cell.when)}</small>'
        + (f"<small>{esc(cell.reason)}</small>" if cell.reason else "")
        + "</td>"
    )


def write(folders: Sequence[Path], names: Iterable[str], out: Path) -> tuple[list[Path], list[str]]:
    """Write matrix.md and matrix.html into ``out``: the pages, and a sentence for each bad folder.

    Raises ``ValueError`` with those sentences where no folder is of use.
    """
    evidence, bad = [], []
    for folder in folders:
        try:
            evidence += look(folder)
        except ValueError as error:
            bad.append(str(error))
    if not evidence:
        raise ValueError("\n".join(bad or ["no folder of a run: name one, or put it in baselines"]))
    out.mkdir(parents=True, exist_ok=True)
    matrix = lay_out(evidence, names, out)
    pages = [out / "matrix.md", out / "matrix.html"]
    write_whole(pages[0], markdown(matrix))
    write_whole(pages[1], page(matrix))
    return pages, bad

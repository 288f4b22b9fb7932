"""What came of a run: each notebook's verdict, and the file that keeps it.

A notebook's verdict rests on three things only: how its execution ended, whether every code cell
ran, and the Reports it required. Papermill's metadata is not among them.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from msnb.hints import Hint, best
from msnb.regression.catalog import Cell, first_line
from msnb.report import MIME, Check, Report

SCHEMA = 2
FILE = "results.json"

Verdict = Literal["ok", "failed", "error", "skipped"]

_TELLING = ("ReportFailed", "DeviceUnavailable")  # errors of ours that say what to type


@dataclass(frozen=True)
class Judged:
    """A Report found in the outputs of cell ``number``."""

    number: int
    report: dict[str, Any]


@dataclass
class NotebookResult:
    """One notebook's part of ``results.json``.

    ``verdict`` is ``ok``, ``failed``, ``error`` (it could not be decided: the kernel never started,
    the run was interrupted) or ``skipped`` (with the reason). ``cell`` is the failing cell: its
    ``In [number]`` in the notebook, its id and first line. ``error`` has name, message, traceback.
    ``left`` are the files it left in its working folder, ``changed`` those beside it that
    changed or went. ``fingerprint`` is that of the notebook and the files beside it,
    ``interpreter`` what its kernel really ran, ``forked`` whether that was forked from a process
    that had imported the frameworks, ``share`` the threads or devices it was given.
    ``kept`` says that an earlier run into the same folder has found this.
    """

    notebook: str
    source: str
    parameters: dict[str, Any]
    verdict: Verdict = "error"
    reason: str = "not started"
    remedy: str = ""
    cell: dict[str, Any] | None = None
    error: dict[str, str] | None = None
    required: list[Judged] = field(default_factory=list)
    findings: list[Judged] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    executed: str | None = None
    log: str | None = None
    kernel: str = ""
    interpreter: str = ""
    forked: bool = False
    share: dict[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    kept: bool = False
    cells: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def decided(self) -> bool:
        """Whether this is a result: it ran and was judged, well or badly."""
        return self.verdict in ("ok", "failed")

    def hint(self) -> Hint | None:
        """What the error that ended this notebook means, where that is known."""
        error = self.error or {}
        if self.verdict == "ok" or error.get("name") in _TELLING:
            return None
        return best(f"{error.get('name')}: {error.get('message')}") if error else None

    @property
    def waits(self) -> bool:
        """Whether it is still to be run."""
        return not self.kept and self.verdict != "skipped"

    def to_check(self) -> Check:
        """This result as a line of the run's Report."""
        hint = None if self.remedy else self.hint()
        return Check(
            self.notebook,
            self.verdict,
            self.reason,
            remedy=hint.type if hint else self.remedy,
            metrics={"seconds": self.seconds},
        )


@dataclass
class Results:
    """A whole run: where and when it ran, and each notebook's result."""

    device: str
    environment: dict[str, Any]
    started: str
    notebooks: list[NotebookResult]
    complete: bool = False
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every verdict is ok, but for notebooks that are for a newer MindSpore."""
        verdicts = {result.verdict for result in self.notebooks}
        return "ok" in verdicts and verdicts <= {"ok", "skipped"}

    def to_report(self) -> Report:
        title = f"msnb run on {self.device}"
        return Report(title, [result.to_check() for result in self.notebooks])

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "ok": self.ok, **asdict(self)}

    def write(self, folder: Path) -> None:
        """Write ``results.json`` under a temporary name and rename it."""
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        write_whole(folder / FILE, text + "\n")

    @classmethod
    def read(cls, path: Path) -> Results:
        """What ``write`` wrote; ``path`` is the file or its folder.

        Raises ``ValueError`` for a file that is none of ours or of another schema.
        """
        path = path / FILE if path.is_dir() else path
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            schema = record.pop("schema")
            record.pop("ok")
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, AttributeError, TypeError):
            raise ValueError(f"{path} is not the results.json of a run") from None
        if schema != SCHEMA:
            raise ValueError(
                f"{path} has schema {schema}, this msnb reads {SCHEMA}: use the msnb that wrote it"
            )
        notebooks = []
        try:
            for entry in record.pop("notebooks"):
                for kind in ("required", "findings"):
                    entry[kind] = [_judged(**judged) for judged in entry[kind]]
                if entry["verdict"] not in get_args(Verdict):
                    raise ValueError(f"{entry['verdict']!r} is not a verdict")
                notebooks.append(_typed(NotebookResult(**entry), NotebookResult("", "", {})))
            names = [result.notebook for result in notebooks]
            if twice := next((name for name in names if names.count(name) > 1), ""):
                raise ValueError(f"{twice} is there twice")
            return _typed(cls(notebooks=notebooks, **record), cls("", {}, "", []))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"no {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"{path} is damaged: {why}") from None


_Record = TypeVar("_Record", NotebookResult, Results)
_OPTIONAL: dict[str, type] = {"cell": dict, "error": dict, "executed": str, "log": str}
_INNER: dict[str, type | tuple[type, ...]] = {
    "left": str,
    "changed": str,
    "notes": str,
    "error": str,
    "phases": (int, float),
    "notebooks": NotebookResult,
    "required": Judged,
    "findings": Judged,
}


def _typed(found: _Record, like: _Record) -> _Record:
    """``found``, whose fields have to be of the types that they have in ``like``."""
    fields: dict[str, Any] = vars(found)
    for name, value in fields.items():
        usual = vars(like)[name]
        kind = type(usual) if usual is not None else _OPTIONAL[name]
        if value is None and usual is None:
            continue
        if not isinstance(value, (int, float) if kind is float else kind):
            raise ValueError(f"{name} is {value!r}")
        if name in _INNER:
            inner: Any = value.values() if isinstance(value, dict) else value
            if not all(isinstance(one, _INNER[name]) for one in inner):
                raise ValueError(f"{name} holds {value!r}")
    if isinstance(found, NotebookResult) and found.cell is not None:
        kinds = {"number": int, "id": str, "line": str}
        if any(not isinstance(found.cell.get(name), kind) for name, kind in kinds.items()):
            raise ValueError(f"cell is {found.cell!r}")
    return found


def _judged(number: int, report: dict[str, Any]) -> Judged:
    if type(number) is not int:
        raise ValueError(f"the number of a cell is {number!r}")
    return Judged(number, _read(report).to_json())


def _read(record: Any) -> Report:
    report = Report.from_json(record)
    if not isinstance(report.title, str):
        raise ValueError(f"its title is {report.title!r}")
    return report


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` so that ``path`` holds either what it held before or all of it."""
    handle, temporary = tempfile.mkstemp(".tmp", f".{path.name}.", path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def judge(
    result: NotebookResult,
    document: Mapping[str, Any] | None,
    end: Mapping[str, Any],
    cells: Sequence[Cell],
    limits: Mapping[str, float],
) -> None:
    """Set the verdict of ``result`` from the executed notebook and how its execution ended.

    ``document`` is the executed notebook, ``None`` where there is none; ``end`` is the last event
    of the executing process, or what the runner has to say in its place.
    """
    result.cells = len(cells)
    broken = _collect(result, document) if document else []
    number = end.get("cell")
    status = end["status"]
    if status != "completed" or end.get("ran", 0) < len(cells):
        _set_cell(result, number, cells)
    result.error = end.get("error")
    where = _where(result.cell)

    if status == "no kernel":
        message = (result.error or {}).get("message", "")
        result.verdict, result.reason = "error", f"its kernel did not start: {_short(message)}"
        result.remedy = "msnb doctor"
    elif status == "stopped" and end.get("why") == "interrupted":
        result.verdict, result.reason = "error", f"interrupted {where or 'before its first cell'}"
    elif status in ("stopped", "vanished"):
        result.verdict = "failed"
        if end.get("why") == "timeout":
            result.reason = f"took longer than {limits['total']:g} s; it was {where or 'starting'}"
        elif end.get("why") == "memory":
            result.reason = f"took {end['memory']}, {where or 'before its first cell'}"
            result.remedy = "smaller batches, or msnb run --memory GB --jobs 1"
        else:
            result.reason = f"its process ended without a word, {where or 'before its first cell'}"
    elif status == "timeout":
        result.verdict = "failed"
        result.reason = f"longer than {limits['cell']:g} s {where}"
    elif status == "died":
        result.verdict = "failed"
        result.reason = f"the kernel died ({_ending(end.get('signal'))}) {where}"
        if end.get("signal") == -9:  # SIGKILL: nobody else kills without a word
            result.remedy = 'dmesg | grep -i "killed process"'
    elif status == "raised":
        result.verdict, result.reason = "failed", _raised(result, where)
    elif status != "completed":
        message = (result.error or {}).get("message", "")
        name = (result.error or {}).get("name", status)
        result.verdict, result.reason = "error", f"{name} {where}: {_short(message)}"
    elif end.get("ran", 0) < len(cells):
        result.verdict = "failed"
        result.reason = (
            f"only {end.get('ran', 0)} of {len(cells)} code cells ran to their end; "
            f"it stopped {where}"
        )
    elif document is None:
        result.verdict, result.reason = "error", "the executed notebook could not be read"
    elif broken:
        result.verdict, result.reason = "failed", broken[0]
    elif not result.required:
        result.verdict = "failed"
        result.reason = "it required nothing, so it proves nothing"
        result.remedy = "Report(...).require() in the notebook's last cell"
    elif not all(_report(judged).ok for judged in result.required):
        bad = next(judged for judged in result.required if not _report(judged).ok)
        _set_cell(result, bad.number, cells)
        result.verdict = "failed"
        result.reason = f"{_not_ok(bad)} {_where(result.cell)}"
    elif wrong := _wrong_interpreter(result):
        result.verdict, result.reason = "failed", wrong
        result.remedy = "msnb doctor --fix"
    elif wrong := _wrong_device(result):
        result.verdict, result.reason = "failed", wrong
    elif result.changed:
        result.verdict = "failed"
        result.reason = f"{', '.join(result.changed)} beside it changed while it ran"
        result.remedy = "write to a temporary folder (tempfile)"
    elif result.left:
        result.verdict = "failed"
        result.reason = f"it left {', '.join(result.left)} in its working folder"
    else:
        checks = sum(len(judged.report["checks"]) for judged in result.required)
        result.verdict = "ok"
        result.reason = (
            f"{len(cells)} cells, {result.seconds:.1f} s; required {_count(result.required)} "
            f"({checks} check{'s' * (checks != 1)})"
        )


def numbered(document: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """The code cells of an executed notebook under the numbers they have in the source."""
    number = 0
    found = []
    for cell in document["cells"]:
        source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
        if cell["cell_type"] != "code" or not source.strip():
            continue
        injected = "injected-parameters" in cell["metadata"].get("tags", [])
        number += not injected
        found.append((0 if injected else number, cell))
    return found


def _collect(result: NotebookResult, document: Mapping[str, Any]) -> list[str]:
    """Take over the Reports shown in ``document``; return what is wrong with them."""
    broken = []
    for number, cell in numbered(document):
        for output in cell.get("outputs", ()):
            record = output.get("data", {}).get(MIME)
            if record is None:
                continue
            try:
                required = bool(record["required"])
                report = _read(record).to_json()
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                broken.append(f"cell {number} shows a Report that cannot be read: {error}")
                continue
            (result.required if required else result.findings).append(Judged(number, report))
    return broken


def _report(judged: Judged) -> Report:
    return Report.from_json(judged.report)


def _not_ok(judged: Judged) -> str:
    report = _report(judged)
    bad = [check for check in report if check.status in ("failed", "error")]
    first = f": {bad[0].id}: {_short(bad[0].summary or bad[0].found)}" if bad else ""
    return f"required, but not ok: {report.headline()}{first}"


def _raised(result: NotebookResult, where: str) -> str:
    error = result.error or {"name": "an error", "message": ""}
    if error["name"] == "ReportFailed" and result.cell:
        for judged in reversed(result.required):
            if judged.number == result.cell["number"]:
                return f"{_not_ok(judged)} {where}"
    message = _short(error["message"])
    return f"{error['name']}{': ' if message else ''}{message} {where}"


def _wrong_device(result: NotebookResult) -> str:
    """What is wrong with the device the notebook says it ran on; empty where nothing is."""
    asked = str(result.parameters["device_target"])
    last = max(judged.number for judged in result.required)
    said = [
        check
        for judged in result.required
        if judged.number == last
        for check in _report(judged)
        if check.id == "device" or check.id.endswith(": device")
    ]
    if last != result.cells or not said:
        result.remedy = "Report(..., [..., context.check()]).require() in the last cell"
        return "its last cell does not require the device it ran on"
    for check in said:
        said_used = check.found or check.summary  # an ok Check may hold its finding in the summary
        used = re.split(r"[\s:,;(]", said_used.strip())[0]
        if check.status != "ok" or (asked != "auto" and used.lower() != asked.lower()):
            return f"it ran on {used or 'an unnamed device'}, not on {asked}"
    return ""


def _wrong_interpreter(result: NotebookResult) -> str:
    ran, own = Path(result.interpreter), Path(sys.executable)
    if not ran.is_absolute() or ran.parent.resolve() == own.parent.resolve():
        return ""
    return f"its kernel ran {ran}, which is not this environment's {own}"


def _set_cell(result: NotebookResult, number: int | None, cells: Sequence[Cell]) -> None:
    if number == 0:
        result.cell = {"number": 0, "id": "", "line": "injected parameters"}
    elif number is not None and number <= len(cells):
        result.cell = asdict(cells[number - 1])


def _where(cell: Mapping[str, Any] | None) -> str:
    return f"in cell [{cell['number']}] {_short(cell['line'], 60)}" if cell else ""


def _ending(code: int | None) -> str:
    if code is None:
        return "exit code unknown"
    if code >= 0:
        return f"exit code {code}"
    import signal

    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _short(text: str, limit: int = 160) -> str:
    line = first_line(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _count(reports: Sequence[Judged]) -> str:
    return f"{len(reports)} report{'s' * (len(reports) != 1)}"

"""A run as it goes: a live table in a terminal, a line for each start and end elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

from msnb.regression.results import NotebookResult

_STATE = {"ok": "green", "failed": "bold red", "error": "bold magenta", "skipped": "dim"}


@dataclass
class _Line:
    name: str
    state: str = "waiting"
    cell: int = 0
    cells: int = 0
    since: float | None = None
    seconds: float = 0.0


@dataclass
class Progress:
    """What runs, at which cell, since when. ``stream`` is standard error unless given."""

    names: list[str]
    stream: TextIO = field(default_factory=lambda: sys.stderr)

    def __post_init__(self) -> None:
        self._lines = {name: _Line(name) for name in self.names}
        self._live: Any = None
        self._done = 0

    @contextmanager
    def shown(self) -> Iterator[None]:
        if not self.stream.isatty():
            yield
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self.stream)
        live = Live(
            get_renderable=self._table, console=console, refresh_per_second=4, transient=True
        )
        with live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def started(self, name: str, cells: int) -> None:
        line = self._lines[name]
        line.state, line.since, line.cells = "starting", time.monotonic(), cells
        self._say(f"start   {name}")

    def at_cell(self, name: str, number: int) -> None:
        self._lines[name].state = "running"
        self._lines[name].cell = number

    def finished(self, result: NotebookResult) -> None:
        line = self._lines[result.notebook]
        line.state, line.seconds = result.verdict, result.seconds
        self._done += 1
        if result.verdict == "ok":
            line.cell = line.cells
        count = f"[{self._done}/{len(self._lines)}]"
        self._say(f"{result.verdict:<7} {result.notebook}  {result.seconds:.1f} s  {count}")

    def note(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self.stream, flush=True)

    def _say(self, text: str) -> None:
        if self._live is None:
            print(text, file=self.stream, flush=True)

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for title, justify in (("", "left"), ("notebook", "left"), ("cell", "right")):
            table.add_column(title, justify=justify)  # type: ignore[arg-type]
        table.add_column("seconds", justify="right")
        now = time.monotonic()
        for line in self._lines.values():
            ended = line.state in _STATE
            seconds = line.seconds if ended or line.since is None else now - line.since
            style = _STATE.get(line.state, "dim" if line.since is None else "")
            table.add_row(
                Text(line.state, style=style),
                Text(line.name),
                f"{line.cell}/{line.cells}" if line.since is not None else "",
                f"{seconds:.0f}" if line.since is not None else "",
            )
        return table

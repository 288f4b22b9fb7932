"""``msnb inspect``: what is in an exported file or a checkpoint, and whether it is whole."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msnb.deploy import graphfile, manifest
from msnb.report import Check, Report

__all__ = ["Contents", "look_into"]

_MODELS = (".mindir", ".onnx", ".air")


@dataclass(frozen=True)
class Contents:
    """What a file holds. ``sections`` maps a title to rows of text; ``report`` judges the file."""

    path: Path
    kind: str
    bytes: int
    report: Report
    sections: Mapping[str, Sequence[tuple[str, ...]]] = field(default_factory=dict)

    def text(self) -> str:
        """All of it as plain text."""
        lines = [f"{self.path.name}: {self.kind}, {self.bytes:,} bytes"]
        for title, rows in self.sections.items():
            lines.append(f"  {title}")
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            for row in rows:
                cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
                lines.append(f"    {'  '.join(cells)}".rstrip())
        return "\n".join([*lines, "", str(self.report)])

    def to_json(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        sections = {title.partition(":")[0]: rows for title, rows in self.sections.items()}
        return {
            "file": self.path.name,
            "kind": self.kind,
            "bytes": self.bytes,
            **{name: [list(row) for row in rows] for name, rows in sections.items()},
            "report": self.report.to_json(),
        }


def look_into(path: Path) -> Contents:
    """What is in a ``.mindir``, ``.ckpt``, ``.safetensors`` or ``.pth`` file, or beside ``.onnx``.

    Nothing in the file is executed, and MindSpore's own reader of graphs, which damage can take
    down, is not used. Raises ``FileNotFoundError``, and ``ValueError`` for a folder.

    >>> print(look_into(Path("lenet.mindir")).text())  # doctest: +SKIP
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file in it")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return _model(path) if path.suffix.lower() in _MODELS else _checkpoint(path)


def _model(path: Path) -> Contents:
    checks: list[Check] = []
    sections: dict[str, Any] = {}
    kind = path.suffix[1:].upper()
    try:
        known = manifest.read(path)
    except manifest.ManifestError as error:
        known = None
        there = manifest.beside(path).exists()
        checks.append(
            Check("manifest", "failed", str(error))
            if there
            else Check("manifest", "skipped", f"not verifiable: {error}")
        )
    if known is not None:
        kind += f" made by MindSpore {known.mindspore} on {known.device}"
        checks.append(Check("manifest", "ok", f"the file is whole: sha256 {known.sha256[:16]}..."))
        for title, ports in (("inputs", known.inputs), ("outputs", known.outputs)):
            sections[title] = [(p.name, p.dtype, _shape(p.shape), p.layout) for p in ports]
    if path.suffix.lower() == ".mindir":
        try:
            graph = graphfile.read(path)
        except graphfile.GraphFileError as error:
            checks.append(Check("graph", "failed", str(error)))
        else:
            if known is None:
                kind += f" made by {graph.made_by}"
                for title, values in (("inputs", graph.inputs), ("outputs", graph.outputs)):
                    if values:
                        shapes = [["any" if n < 0 else n for n in v.shape] for v in values]
                        sections[title] = [
                            (v.name, v.dtype, _shape(s), "")
                            for v, s in zip(values, shapes, strict=True)
                        ]
            sections.update(_parameters([(v.name, v.dtype, v.shape) for v in graph.parameters]))
            sections["operators"] = [(name, str(n)) for name, n in graph.operators.items()] or [
                ("none", "")
            ]
            checks.append(
                Check("graph", "failed", f"{', '.join(graph.training)} as in training")
                if graph.training
                else Check("graph", "ok", "readable; nothing in it behaves as in training")
            )
    elif known is None:
        checks.append(Check("content", "skipped", f"msnb does not read {kind} itself"))
    return _contents(path, kind, checks, sections)


def _checkpoint(path: Path) -> Contents:
    from msnb import stored
    from msnb.parity.arrays import to_numpy

    try:
        found = stored.read(path)
    except ValueError as error:
        return _contents(path, "not readable", [Check("file", "failed", str(error))], {})
    arrays = [(name, to_numpy(value)) for name, value in found.entries.items()]
    sections: dict[str, Any] = _parameters([(n, d, tuple(a.shape)) for n, (a, d) in arrays])
    if found.state:
        sections["state"] = [
            (key, text if len(text) <= 60 else text[:57] + "...")
            for key, text in ((str(k), str(v)) for k, v in found.state.items())
            if key not in ("entries", "random")
        ]
    check = (
        Check("checksum", "ok", f"the file is whole: {found.checksum} agrees")
        if found.checksum
        else Check("checksum", "skipped", "not verifiable: the file carries no checksum")
    )
    readable = Check("content", "ok", f"{len(arrays)} arrays; nothing in it was executed")
    kind = f"a checkpoint, {found.format}"
    return _contents(path, kind, [check, readable], sections)


def _parameters(rows: Sequence[tuple[str, str, Sequence[int]]]) -> dict[str, Any]:
    sizes = [math.prod(shape) for *_, shape in rows]
    title = f"parameters: {sum(sizes):,} in {len(rows)} arrays"
    shown = [
        (name, dtype, _shape(shape), f"{size * _width(dtype):,} bytes")
        for (name, dtype, shape), size in zip(rows, sizes, strict=True)
    ]
    return {title: shown} if rows else {}


def _width(dtype: str) -> int:
    """Bytes of one element: float32 has 32 bits."""
    bits = re.search(r"(\d+)", dtype)
    return max(int(bits[1]) // 8, 1) if bits else 1


def _contents(path: Path, kind: str, checks: list[Check], sections: dict[str, Any]) -> Contents:
    return Contents(
        path, kind, path.stat().st_size, Report(f"inspect {path.name}", checks), sections
    )


def _shape(shape: Sequence[int | str]) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"

"""The manifest beside an exported file: what goes in, what comes out, and what proves it.

``lenet.mindir.json`` stands beside ``lenet.mindir``. It is JSON with a checksum of its own, so that
a damaged manifest is noticed as a damaged model is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Manifest", "ManifestError", "Port", "beside", "read"]

FORMAT = 1
_KEPT = 16  # values of each output that are kept, for devices that round differently

Array = np.ndarray[Any, Any]


class ManifestError(ValueError):
    """No manifest, a damaged one, or one that belongs to another file."""


@dataclass(frozen=True)
class Port:
    """An input or an output. In ``shape`` a text is the name of an axis of any size.

    An output's axis called ``?`` has a size that the inputs' shapes do not tell.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    layout: str = ""

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.shape)) + ("," if len(self.shape) == 1 else "")
        return f"{self.name} {self.dtype} ({sizes})" + (f" {self.layout}" if self.layout else "")


@dataclass(frozen=True)
class Manifest:
    """What is known of an exported file; ``kind`` is MINDIR, ONNX or AIR.

    ``proof`` holds a seed, the range of each seeded input, and for each output its sha256 and first
    values: what the net gave for that input when it was exported.
    """

    file: str
    kind: str
    bytes: int
    sha256: str
    mindspore: str
    device: str
    net: str
    parameters: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    proof: Mapping[str, Any] = field(default_factory=dict)
    previous: Mapping[str, Any] | None = None

    @property
    def rows(self) -> int | str:
        """The first size of the first input: how many rows the file was made for, or its name."""
        return self.inputs[0].shape[0] if self.inputs and self.inputs[0].shape else 1

    def axes(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The size of each named axis, read from the shapes of the inputs."""
        sizes: dict[str, int] = {}
        for port, shape in zip(self.inputs, shapes, strict=True):
            for want, have in zip(port.shape, shape, strict=True):
                if isinstance(want, str):
                    sizes.setdefault(want, have)
        return sizes

    def seeded(self, sizes: Mapping[str, int] | None = None) -> list[Array]:
        """The seeded inputs, the same in every process; ``sizes`` replaces those of named axes."""
        rng = np.random.default_rng(self.proof["seed"])
        return [
            draw(rng, port, drawn, {**self.proof["sizes"], **(sizes or {})})
            for port, drawn in zip(self.inputs, self.proof["inputs"], strict=True)
        ]

    def text(self) -> str:
        """The file's content."""
        record = {"format": FORMAT, **asdict(self)}
        if self.previous is None:
            del record["previous"]
        return _canonical({**record, "checksum": _checksum(record)})


def draw(
    rng: np.random.Generator, port: Port, drawn: Mapping[str, float], sizes: Mapping[str, int]
) -> Array:
    """One seeded input, in the range of the example it was exported with."""
    shape = [sizes[size] if isinstance(size, str) else size for size in port.shape]
    low, high = drawn["low"], drawn["high"]
    if port.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in port.dtype:
        return rng.integers(int(low), int(high) + 1, shape).astype(port.dtype)
    dtype = "float32" if port.dtype == "bfloat16" else port.dtype
    return rng.uniform(low, high, shape).astype(dtype)


def spread(values: Array) -> dict[str, float]:
    """The range that ``draw`` draws from: the example's, or -1 to 1 where that is one number."""
    if values.dtype == bool:
        return {"low": 0, "high": 1}
    low, high = float(values.min()), float(values.max())
    if low == high and values.dtype.kind == "f":
        low, high = low - 1.0, high + 1.0
    return {"low": low, "high": high}


def fingerprint(values: Array) -> dict[str, Any]:
    """What is kept of an output: its shape, its sha256 and its first values."""
    flat = np.ascontiguousarray(values).ravel()[:_KEPT]
    if np.iscomplexobj(flat):
        flat = flat.view(flat.real.dtype)
    return {
        "shape": list(values.shape),
        "sha256": hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest(),
        "first": [value.item() for value in flat],
    }


def beside(path: Path) -> Path:
    """Where the manifest of an exported file is."""
    return path.with_name(path.name + ".json")


def sha256(path: Path) -> str:
    """Of a file's content, in pieces: a model may be large."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def read(path: Path) -> Manifest:
    """The manifest of the exported file ``path``, proved to belong to it.

    While a file is replaced by a newer export its manifest knows both, so that a process that is
    killed then leaves the one or the other, whole.

    Raises ``ManifestError`` where there is none, where it is damaged, and where the file is not the
    one that it was written for.
    """
    place = beside(path)
    if not place.is_file():
        raise ManifestError(
            f"{path} has no manifest: {place.name} should be beside it, and without it nothing "
            "tells what the file expects, nor whether it is whole; copy it along, or export again "
            "with msnb.export"
        )
    try:
        content = place.read_bytes().decode()
        record = json.loads(content)
        if _canonical(record) != content or record.pop("checksum") != _checksum(record):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ManifestError(
            f"the manifest {place} is damaged or was edited: its checksum does not match; copy it "
            "again from where the file was exported, or export again"
        ) from None
    if record.get("format") != FORMAT:
        raise ManifestError(
            f"the manifest {place} has format {record.get('format')}, and this msnb reads format "
            f"{FORMAT}: use the msnb that wrote it, or a newer one"
        )
    found = sha256(path)
    newest, older = record, record.get("previous")
    if older and older.get("sha256") == found:
        record = older
    if record.get("sha256") != found:
        size = path.stat().st_size
        cut = f"it has {size:,} bytes of {newest['bytes']:,}"
        what = cut if size != newest["bytes"] else "the size is right, the content is not"
        raise ManifestError(
            f"{path} is damaged, or not the file that its manifest was written for ({what}): its "
            "sha256 is another one; copy both files again, or export again"
        )
    try:
        return _parse(record)
    except (KeyError, TypeError):
        raise ManifestError(f"the manifest {place} was not written by msnb: export again") from None


def _parse(record: Mapping[str, Any]) -> Manifest:
    values = {key: value for key, value in record.items() if key not in ("format", "previous")}
    for side in ("inputs", "outputs"):
        values[side] = tuple(Port(**{**p, "shape": tuple(p["shape"])}) for p in record[side])
    return Manifest(**values)


def _checksum(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(record).encode()).hexdigest()


def _canonical(record: Any) -> str:
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"

"""Running a net and an exported file alike: arrays in, arrays out, errors as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msnb.deploy.refusals import first_line
from msnb.isolate import settle
from msnb.parity.arrays import compare, to_numpy
from msnb.parity.calls import clear, places

Array = np.ndarray[Any, Any]
Outputs = list[tuple[str, Array]]


@dataclass(frozen=True)
class Failure:
    """An exception as a value, with the whole of its message."""

    type: str
    text: str

    def __str__(self) -> str:
        return f"{self.type}: {first_line(self.text)}"


def attempt(function: Callable[..., Any], *args: Any) -> Any:
    """The function's value, or a ``Failure``; an asynchronous error belongs to its call."""
    clear()
    try:
        value = function(*args)
        settle()
    except Exception as error:
        clear()
        return Failure(type(error).__name__, str(error))
    return value


def tensors(arrays: Sequence[Array], dtypes: Sequence[str]) -> list[Any]:
    """MindSpore tensors of these dtypes."""
    import mindspore as ms

    names = {"bool": "bool_"}
    return [
        ms.Tensor(np.ascontiguousarray(array).reshape(array.shape), getattr(ms, names.get(d, d)))
        for array, d in zip(arrays, dtypes, strict=True)
    ]


def outputs(function: Any, arrays: Sequence[Array], dtypes: Sequence[str]) -> Outputs | Failure:
    """What a net or a loaded file gives for these inputs: (name, array) for each output."""

    def call() -> Outputs:
        found = places(function(*tensors(arrays, dtypes)))
        for place, leaf in found:
            if not hasattr(leaf, "asnumpy"):
                raise TypeError(f"output {label(place)} is {leaf!r}, not a tensor")
        return [(label(place), to_numpy(leaf)[0]) for place, leaf in found]

    found: Outputs | Failure = attempt(call)
    return found


def label(place: tuple[Any, ...]) -> str:
    """An output's name: ``output`` alone, else where it is, ``0`` or ``logits``."""
    return ".".join(map(str, place)) or "output"


def load(path: str) -> Any:
    """The callable that MindSpore makes of a MINDIR file."""
    import mindspore
    from mindspore import nn

    return nn.GraphCell(mindspore.load(path))


def run_file(
    path: str, batches: Sequence[Sequence[Array]], dtypes: Sequence[str], device: str
) -> list[Outputs | Failure]:
    """What the file gives for each batch; meant for a process of its own."""
    import mindspore

    from msnb.parity.calls import tidy

    with tidy():
        mindspore.set_device(device)
        model = attempt(load, path)
        if isinstance(model, Failure):
            return [model for _ in batches]
        return [outputs(model, arrays, dtypes) for arrays in batches]


def bitwise(first: Array, second: Array) -> bool:
    """The same shape, dtype and bits."""
    return (
        first.shape == second.shape
        and first.dtype == second.dtype
        and first.tobytes() == second.tobytes()
    )


def repeats(first: Outputs, second: Outputs) -> bool:
    """Whether two runs on one input agree: bit by bit, or but for rounding.

    Some of MindSpore's operators on a CPU, ``std`` and ``log2`` among them, give another last bit
    from one call to the next.
    """
    return [name for name, _ in first] == [name for name, _ in second] and all(
        bitwise(a, b) or (a.shape == b.shape and compare(a, b).ok)
        for (_, a), (_, b) in zip(first, second, strict=True)
    )

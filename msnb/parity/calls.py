"""Calling either framework so that what happens belongs to the call: values, exceptions, state."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from msnb.parity.arrays import to_numpy


@dataclass(frozen=True)
class Raised:
    """An exception as a value: its type's name and the first line of its message."""

    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The function's value, or what it raised as a ``Raised``.

    MindSpore's PyNative errors are asynchronous: a failed kernel is reported by a later, innocent
    call. The queue is emptied before and after, so that an error found here belongs to this call,
    and the process is healthy afterwards.

    >>> str(attempt(int, "four"))
    "ValueError: invalid literal for int() with base 10: 'four'"
    """
    clear()
    try:
        value = function(*args, **kwargs)
        _synchronise()
    except Exception as error:
        clear()
        lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
        return Raised(type(error).__name__, lines[0] if lines else "")
    return value


def clear() -> str:
    """Take an error that an earlier MindSpore call left behind; its text, or nothing."""
    try:
        _synchronise()
    except Exception as error:
        return str(error).partition("\n")[0]
    return ""


def _synchronise() -> None:
    if "mindspore" in sys.modules:
        import_module("mindspore.common.api")._pynative_executor.sync()


def kind(thing: Any) -> str:
    """``torch``, ``mindspore``, ``numpy`` or nothing: whose module, cell or tensor this is."""
    homes = [base.__module__ for base in type(thing).__mro__]
    # functions: builtin ones of torch have no module, but an owner that has one
    homes += [str(getattr(thing, "__module__", "")), repr(getattr(thing, "__self__", ""))]
    for home in homes:
        for root in ("torch", "mindspore", "numpy"):
            if home == root or home.startswith((f"{root}.", f"<class '{root}.", f"<{root}.")):
                return root
    return ""


@dataclass(frozen=True)
class Argument:
    """One argument: an array with the name of its dtype, or any other value as it is."""

    value: Any
    dtype: str = ""

    @classmethod
    def of(cls, value: Any) -> Argument:
        if kind(value) and hasattr(value, "dtype") and hasattr(value, "shape"):
            return cls(*to_numpy(value))
        return cls(value)

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith(("float", "bfloat"))

    def torch(self, *, double: bool = False) -> Any:
        if not self.dtype:
            return self.value
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(self.value).copy())
        if double and self.is_float:
            return tensor.double()
        if double and tensor.is_complex():
            return tensor.to(torch.complex128)
        return tensor.to(getattr(torch, self.dtype))

    def mindspore(self) -> Any:
        if not self.dtype:
            return self.value
        import mindspore as ms

        if not self.value.size:  # a Tensor is not made from an array without elements
            return ms.ops.zeros(self.value.shape, getattr(ms, _MS_NAME.get(self.dtype, self.dtype)))
        return ms.Tensor(self.value.copy(), getattr(ms, _MS_NAME.get(self.dtype, self.dtype)))


_MS_NAME = {"bool": "bool_"}


# Calls in each mode: the wrappers are compiled from their source, so they hold the call alone.


def in_mode(function: Any, mode: str) -> Any:
    if mode == "jit":
        import mindspore as ms

        return ms.jit(plain(function))
    if mode == "graph" and not hasattr(function, "construct"):
        return as_cell(function)
    return function


def plain(function: Any) -> Any:
    def call(*args):  # type: ignore[no-untyped-def]
        return function(*args)

    return call


def weighted(function: Any, weight: Any) -> Any:
    def weighted(*args):  # type: ignore[no-untyped-def]
        return (function(*args) * weight).sum()

    return weighted


def weighted_tuple(function: Any, index: tuple[int, ...], weights: tuple[Any, ...]) -> Any:
    def weighted(*args):  # type: ignore[no-untyped-def]
        out = function(*args)
        total = (out[index[0]] * weights[0]).sum()
        for i in range(1, len(index)):
            total = total + (out[index[i]] * weights[i]).sum()
        return total

    return weighted


def as_cell(function: Any) -> Any:
    from mindspore import nn

    class Call(nn.Cell):  # type: ignore[misc]
        def __init__(self, function):  # type: ignore[no-untyped-def]
            super().__init__()
            self.function = function

        def construct(self, *args):  # type: ignore[no-untyped-def]
            return self.function(*args)

    return Call(function)  # type: ignore[no-untyped-call]


@contextmanager
def run_mode(mode: str) -> Iterator[None]:
    import mindspore as ms

    before = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    try:
        yield
    finally:
        ms.set_context(mode=before)


@contextmanager
def unchanged(cell: Any) -> Iterator[None]:
    """Give a Cell's parameters and statistics back as they were."""
    if not hasattr(cell, "parameters_and_names"):
        yield
        return
    import mindspore as ms

    before = {name: value.asnumpy().copy() for name, value in named(cell)}
    try:
        yield
    finally:
        for name, value in named(cell):
            if not np.array_equal(value.asnumpy(), before[name], equal_nan=True):
                value.set_data(ms.Tensor(before[name], value.dtype))


def named(cell: Any) -> list[tuple[str, Any]]:
    return list(cell.parameters_and_names())


# Values


def leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for key in value for leaf in leaves(value[key])]
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def dtype(leaf: Any) -> str:
    return to_numpy(leaf)[1] if hasattr(leaf, "dtype") else ""


def is_floating(leaf: Any) -> bool:
    return dtype(leaf).startswith(("float", "bfloat", "complex"))


def is_real(leaf: Any) -> bool:
    return dtype(leaf).startswith(("float", "bfloat"))

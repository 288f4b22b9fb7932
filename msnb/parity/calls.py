"""Calling either framework so that what happens belongs to the call: values, exceptions, state."""

from __future__ import annotations

import functools
import os
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from msnb.isolate import settle
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
        settle()
    except Exception as error:
        clear()
        lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
        return Raised(type(error).__name__, lines[0] if lines else "")
    return value


def clear() -> str:
    """Take an error that an earlier MindSpore call left behind; its text, or nothing."""
    try:
        settle()
    except Exception as error:
        return str(error).strip().partition("\n")[0]
    return ""


def kind(thing: Any) -> str:
    """``torch``, ``mindspore``, ``numpy`` or nothing: whose module, cell or tensor this is."""
    homes = [base.__module__ for base in type(thing).__mro__]
    # functions: builtin ones of torch have no module, but an owner that has one
    homes += [str(getattr(thing, "__module__", "")), repr(getattr(thing, "__self__", ""))]
    homes.append(repr(getattr(thing, "__objclass__", "")))  # methods such as torch.Tensor.exp
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
        if isinstance(value, np.generic) or (
            kind(value) and hasattr(value, "dtype") and hasattr(value, "shape")
        ):
            return cls(*to_numpy(value))
        return cls(_mapped(value, lambda leaf: cls.of(leaf)))

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith(("float", "bfloat"))

    @property
    def is_integer(self) -> bool:
        return self.dtype.startswith("int")

    def with_value(self, value: Any) -> Argument:
        return Argument(np.asarray(value).astype(self.value.dtype), self.dtype)

    def torch(self, *, double: bool = False) -> Any:
        if not self.dtype:
            return _mapped(self.value, lambda leaf: leaf.torch(double=double))
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(self.value).copy())
        tensor = tensor.reshape(self.value.shape)  # ascontiguousarray turns 0-d into 1-d
        if double and self.is_float:
            return tensor.double()
        if double and tensor.is_complex():
            return tensor.to(torch.complex128)
        return tensor.to(getattr(torch, self.dtype))

    def mindspore(self) -> Any:
        if not self.dtype:
            return _mapped(self.value, lambda leaf: leaf.mindspore())
        import mindspore as ms

        dtype = getattr(ms, _MS_NAME.get(self.dtype, self.dtype))
        if not self.value.size:  # a Tensor is not made from an array without elements
            return ms.ops.zeros(self.value.shape, dtype)
        return ms.Tensor(self.value.copy(), dtype)


_MS_NAME = {"bool": "bool_"}


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The arrays in a list, tuple or dict changed, everything else as it is."""
    if isinstance(value, Argument):
        return change(value) if value.dtype else value.value
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_mapped(item, change) for item in value)
    if type(value) is dict:
        return {key: _mapped(item, change) for key, item in value.items()}
    if hasattr(value, "dtype") and hasattr(value, "shape") and kind(value):
        return change(value)
    return value


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


def weighted(function: Any, places: tuple[Any, ...], weights: tuple[Any, ...]) -> Any:
    """A function whose value is the sum of some outputs, each with its weights."""

    def weighted_sum(*args):  # type: ignore[no-untyped-def]
        out = function(*args)
        total = 0
        for i in range(len(places)):
            value = out
            for key in places[i]:
                value = value[key]
            total = total + (value * weights[i]).sum()
        return total

    return weighted_sum


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
def tidy() -> Iterator[None]:
    """Keep what failing graph compiles write out of the reader's folder, which gets ``rank_0``."""
    if "MS_OM_PATH" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="msnb-") as folder:
        os.environ["MS_OM_PATH"] = folder
        try:
            yield
        finally:
            os.environ.pop("MS_OM_PATH", None)


# Nets, and giving them back as they were


def is_module(thing: Any) -> bool:
    return hasattr(thing, "named_parameters") and not isinstance(thing, type)


def is_cell(thing: Any) -> bool:
    return hasattr(thing, "parameters_and_names") and not isinstance(thing, type)


def nets_of(function: Any) -> list[Any]:
    """The nets that a call reaches: the callable itself, or what the function has at hand."""
    found: dict[int, Any] = {}
    seen: set[int] = set()

    def look(thing: Any) -> None:
        if id(thing) in seen:
            return
        seen.add(id(thing))
        if is_module(thing) or is_cell(thing):
            found[id(thing)] = thing
        elif isinstance(thing, functools.partial):
            for part in (thing.func, *thing.args, *thing.keywords.values()):
                look(part)
        elif isinstance(thing, types.MethodType):
            look(thing.__self__)
            look(thing.__func__)
        elif isinstance(thing, types.FunctionType) and kind(thing) == "":
            for cell in thing.__closure__ or ():
                try:
                    look(cell.cell_contents)
                except ValueError:  # not filled yet
                    continue
            for name in thing.__code__.co_names:
                if name in thing.__globals__:
                    look(thing.__globals__[name])

    look(function)
    return list(found.values())


@contextmanager
def unchanged(nets: Iterable[Any]) -> Iterator[None]:
    """Give nets of either framework back as they were: values, gradients, training flags."""
    with ExitStack() as stack:
        for net in nets:
            stack.enter_context(_module_kept(net) if is_module(net) else _cell_kept(net))
        yield


@contextmanager
def _module_kept(net: Any) -> Iterator[None]:
    import torch

    state = {name: (v, v.detach().clone()) for name, v in net.state_dict(keep_vars=True).items()}
    grads = [(p, p.grad, None if p.grad is None else p.grad.clone()) for p in net.parameters()]
    flags = [(layer, layer.training) for layer in net.modules()]
    try:
        yield
    finally:
        with torch.no_grad():
            for value, before in state.values():
                if not torch.equal(value, before):
                    value.copy_(before)
            for parameter, grad, before in grads:
                parameter.grad = grad
                if grad is not None and not torch.equal(grad, before):
                    grad.copy_(before)
        for layer, flag in flags:
            layer.training = flag


def write(parameter: Any, array: np.ndarray[Any, Any]) -> None:
    """Set a MindSpore Parameter's value where it lies, unless it is the same bit by bit.

    ``set_data`` gives a Parameter new memory. A function that ``ms.jit`` has compiled, the step of
    an optimizer among them, goes on with the old one: it computes with the old value, and what it
    trains is read by nobody (MindSpore 2.10, CPU).
    """
    import mindspore as ms

    # an array's bytes: NaN equals itself, and bfloat16 needs no comparison of its own
    if parameter.asnumpy().tobytes() == array.tobytes():
        return
    value = ms.Tensor(np.array(array, order="C"), parameter.dtype)
    if parameter.dtype == ms.bfloat16:  # no kernel on CPU assigns it
        parameter.set_data(value)
    else:
        ms.ops.assign(parameter, value)


@contextmanager
def _cell_kept(net: Any) -> Iterator[None]:
    before = {name: value.asnumpy().copy() for name, value in named(net)}
    flags = [(cell, bool(cell.training), cell.phase) for cell in cells(net)]
    try:
        yield
    finally:
        for name, value in named(net):
            write(value, before[name])
        for cell, flag, phase in flags:
            if bool(cell.training) != flag:
                cell.add_flags(training=flag)
                cell.phase = phase


@contextmanager
def training(net: Any, flag: bool) -> Iterator[None]:
    """A net of either framework in training or evaluation, with its own flags afterwards."""
    with unchanged([net]):
        if is_cell(net):
            net.set_train(flag)
        else:
            net.train(flag)
        yield


def cells(net: Any) -> list[Any]:
    return [cell for _, cell in net.cells_and_names()]


def named(net: Any) -> list[tuple[str, Any]]:
    return list(net.parameters_and_names())


def is_statistic(name: str) -> bool:
    """Whether this parameter of a Cell holds running statistics, which training does not move."""
    return name.rpartition(".")[2].startswith(("moving_", "running_"))


# Values


def leaves(value: Any) -> list[Any]:
    return [leaf for _, leaf in places(value)]


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves of a structure, each with the keys that lead to it."""
    if isinstance(value, Mapping):
        return [found for key in value for found in places(value[key], (*place, key))]
    if isinstance(value, (tuple, list)):
        return [found for i, item in enumerate(value) for found in places(item, (*place, i))]
    return [(place, value)]


def dtype(leaf: Any) -> str:
    return to_numpy(leaf)[1] if hasattr(leaf, "dtype") else ""


def is_floating(leaf: Any) -> bool:
    return dtype(leaf).startswith(("float", "bfloat", "complex"))


def is_real(leaf: Any) -> bool:
    return dtype(leaf).startswith(("float", "bfloat"))

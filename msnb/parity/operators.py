"""Ask about one operator: the same inputs to both frameworks, and every way they can disagree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msnb.parity.calls import Argument, is_cell, kind
from msnb.parity.sweeps import sweep_report
from msnb.parity.trials import Settings, Trial
from msnb.report import Check, Report

MODES = ("pynative", "jit", "graph")


def probe(
    torch_fn: Any,
    ms_fn: Any,
    inputs: Sequence[Any] | Callable[..., Sequence[Any]],
    *,
    modes: Sequence[str] | None = None,
    grads: bool = True,
    extremes: bool = True,
    reference: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
    reduction: int | None = None,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    isolate: bool = False,
    timeout: float = 60.0,
    seed: int = 0,
    title: str | None = None,
) -> Report:
    """Whether an operator, module or net of PyTorch and one of MindSpore compute the same.

    ``torch_fn`` is a function or ``nn.Module``, ``ms_fn`` a function, primitive or ``nn.Cell``.
    ``inputs`` is the list of arguments: arrays or tensors of any framework, alone or in lists and
    dicts, are handed to each side as its own tensors of the same dtype, everything else as it is.

    The rows: training flags and parameters alike (nets only); the result in each of ``modes``
    (``pynative``, ``jit``, ``graph``; the first two where none is named), each called twice; the
    arguments after the call; the result in evaluation mode and running statistics after a call in
    training mode (nets only); gradients of a fixed random weighting of the outputs, for every
    floating input and parameter; empty, zero, tiny, large, NaN and infinite inputs, as far as
    PyTorch takes them; a scan from -12 to 12, with values outside the function's range. An
    exception on one side only is a difference. Operators that are random on both sides are
    compared by their statistics. A failed row names a cause where one was tried out and holds.

    ``reference``, a function on float64 torch tensors, tells which side is off; without one
    ``torch_fn`` itself is called in double precision. ``rtol``, ``atol`` and ``reduction`` go to
    ``msnb.compare``. With ``sweep`` (name to values) ``torch_fn`` and ``ms_fn`` are called with
    each combination as keywords and return what to probe, ``inputs`` may be such a function too,
    and ``plot()`` draws the map of agreement; a sweep leaves extremes out, and jit unless named.
    ``isolate`` probes in a warm process of its own, with ``timeout`` in seconds: a crash is then a
    row, and a negative index and the extremes that PyTorch refuses are tried too. Nets come back
    as they were: parameters, statistics, training flags, gradients.

    Raises ``TypeError`` for sides that are swapped, not callable or return None, and ``ValueError``
    for an unknown mode or an empty sweep.

    >>> import numpy as np
    >>> import torch
    >>> from mindspore import ops
    >>> x = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    >>> probe(torch.exp, ops.exp, [x]).worst
    'ok'
    """
    settings = Settings(
        _modes(modes), grads, extremes, reference, rtol, atol, reduction, seed, isolate
    )
    _check_sides(torch_fn, ms_fn)
    if reference is not None and not callable(reference):
        raise TypeError(
            f"reference is a function on float64 torch tensors, not {type(reference).__name__}; "
            "hold a known result against with msnb.compare(actual, expected, reference=...)"
        )
    name = title or f"probe {_name(torch_fn)} / {_name(ms_fn)}"

    def probe_one(torch_fn: Any, ms_fn: Any, inputs: Any, settings: Settings, name: str) -> Report:
        _check_sides(torch_fn, ms_fn)
        args = [Argument.of(value) for value in _listed(inputs)]
        if isolate:
            return _isolated(torch_fn, ms_fn, args, settings, timeout, name)
        return Trial(torch_fn, ms_fn, args, settings).run(name)

    if sweep is None:
        return probe_one(torch_fn, ms_fn, inputs() if callable(inputs) else inputs, settings, name)
    short = replace(settings, extremes=False, modes=settings.modes or ("pynative",))
    return sweep_report(
        torch_fn,
        ms_fn,
        inputs,
        sweep,
        lambda torch_fn, ms_fn, given: probe_one(torch_fn, ms_fn, given, short, name),
        name,
    )


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


# Bad input


def _modes(modes: Any) -> tuple[str, ...] | None:
    if modes is None:
        return None
    if isinstance(modes, str) or not isinstance(modes, Sequence):
        raise TypeError(f"modes is a list of modes, not {modes!r}: write modes=[{modes!r}]")
    for mode in modes:
        if mode not in MODES:
            raise ValueError(f"modes are among {', '.join(MODES)}, not {mode!r}")
    if not modes or len(set(modes)) < len(modes):
        raise ValueError(
            f"modes={list(modes)!r}: give each mode once, at least one of {', '.join(MODES)}"
        )
    return tuple(modes)


def _check_sides(torch_fn: Any, ms_fn: Any) -> None:
    for name, thing, wrong in (("torch_fn", torch_fn, "mindspore"), ("ms_fn", ms_fn, "torch")):
        right, other = ("PyTorch", "MindSpore")[:: 1 if name == "torch_fn" else -1]
        if isinstance(thing, type) and _is_net_class(thing):
            raise TypeError(
                f"{name} is the class {thing.__name__}, not a net: make one, {thing.__name__}(...)"
            )
        if not callable(thing):
            raise TypeError(
                f"{name} is {type(thing).__name__}, which cannot be called; give a function, "
                "an nn.Module or an nn.Cell"
            )
        if kind(thing) == wrong:
            raise TypeError(
                f"{name} is {_name(thing)} of {other}, {name} belongs to {right}: "
                "the order is probe(torch_fn, ms_fn, inputs)"
            )


def _is_net_class(thing: type) -> bool:
    return hasattr(thing, "named_parameters") or hasattr(thing, "parameters_and_names")


def _listed(inputs: Any) -> Sequence[Any]:
    if isinstance(inputs, Mapping):
        raise TypeError(
            f"inputs is the list of positional arguments, not a dict of {', '.join(inputs)}; for "
            "keywords wrap each side: def f(x): return ops.softmax(x, axis=1)"
        )
    if not isinstance(inputs, (list, tuple)):
        raise TypeError(
            f"inputs is the list of arguments, not {type(inputs).__name__}; for one array write [x]"
        )
    return inputs


# A process of its own

_worker: Any = None


def _isolated(
    torch_fn: Any,
    ms_fn: Any,
    args: list[Argument],
    settings: Settings,
    timeout: float,
    title: str,
) -> Report:
    global _worker
    from msnb import isolate

    if is_cell(ms_fn):
        raise TypeError(
            f"isolate=True sends ms_fn to another process, and a {type(ms_fn).__name__} cannot "
            "travel: give a function that builds it and calls it"
        )
    if _worker is None:
        _worker = isolate.Worker()
    try:
        outcome = _worker.run(_remote, torch_fn, ms_fn, args, settings, title, timeout=timeout)
    except TypeError as error:
        raise TypeError(str(error).replace("_remote", "one of the functions")) from None
    if outcome.status == "ok":
        return Report.from_json(outcome.value)
    if outcome.error and outcome.error.type in ("TypeError", "ValueError"):
        raise {"TypeError": TypeError, "ValueError": ValueError}[outcome.error.type](
            outcome.error.message
        )
    said, _, more = outcome.describe().partition("\n")
    return Report(
        title,
        [
            Check(
                "process",
                "failed",
                said.replace("_remote", "the probe"),
                found=next((line for line in more.splitlines() if "Fatal" in line), ""),
                expected="both functions return or raise",
                remedy="this call ends the process it runs in: keep it out of a notebook's kernel",
            )
        ],
    )


def _remote(
    torch_fn: Any, ms_fn: Any, args: list[Argument], settings: Settings, title: str
) -> dict[str, Any]:
    return Trial(torch_fn, ms_fn, args, settings).run(title).to_json()

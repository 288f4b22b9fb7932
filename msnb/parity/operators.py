"""Ask about one operator: the same inputs to both frameworks, and every way they can disagree."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msnb.parity.arrays import compare, to_numpy
from msnb.parity.calls import (
    Argument,
    Raised,
    as_cell,
    attempt,
    clear,
    dtype,
    in_mode,
    is_floating,
    is_real,
    kind,
    leaves,
    named,
    run_mode,
    unchanged,
    weighted,
    weighted_tuple,
)
from msnb.parity.limits import EPS
from msnb.report import Check, Report

_Array = np.ndarray[Any, Any]

MODES = ("pynative", "jit", "graph")

_RANDOM_SAMPLE = 2000  # elements gathered before two random operators are compared
_TRAINS_OTHERWISE = ("Dropout", "BatchNorm", "InstanceNorm", "SyncBatchNorm", "LSTM", "GRU", "RNN")
_SIGMAS = 6.0
_SCAN, _SCAN_SIZE = 12.0, 4096
_ILL_CONDITIONED = 4.0  # how much farther than PyTorch from float64 MindSpore may be


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
    ``inputs`` is the list of arguments: arrays or tensors of any framework are handed to each side
    as its own tensors of the same dtype, everything else as it is.

    The rows: training flags and parameters alike (modules only); the result in each of ``modes``
    (``pynative``, ``jit``, ``graph``; the first two where none is named), each called twice;
    gradients of a fixed random weighting of the outputs, for every floating input and parameter;
    arguments changed in place; empty, zero, tiny, large, NaN and infinite inputs; values outside
    the function's range. An exception on one side only is a difference. Operators that are random
    on both sides are compared by their statistics.

    ``reference``, a function on float64 torch tensors, tells which side is off; without one
    ``torch_fn`` itself is called in double precision. ``rtol``, ``atol`` and ``reduction`` go to
    ``msnb.compare``. With ``sweep`` (name to values) ``torch_fn`` and ``ms_fn`` are called with
    each combination as keywords and return what to probe, ``inputs`` may be such a function too,
    and ``plot()`` draws the map of agreement. ``isolate`` probes in a warm process of its own, with
    ``timeout`` in seconds: a crash is then a row. Nets come back as they were.

    Raises ``TypeError`` for sides that are swapped, not callable or return None, and ``ValueError``
    for an unknown mode or an empty sweep.

    >>> import torch
    >>> from mindspore import ops
    >>> x = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    >>> probe(torch.exp, ops.exp, [x]).worst
    'ok'
    """
    settings: dict[str, Any] = {
        "modes": modes,
        "grads": grads,
        "extremes": extremes,
        "reference": reference,
        "rtol": rtol,
        "atol": atol,
        "reduction": reduction,
        "seed": seed,
    }
    _check_sides(torch_fn, ms_fn)
    for mode in modes or ():
        if mode not in MODES:
            raise ValueError(f"modes are among {', '.join(MODES)}, not {mode!r}")
    name = title or f"probe {_name(torch_fn)} / {_name(ms_fn)}"
    if sweep is not None:
        return _sweep(torch_fn, ms_fn, inputs, dict(sweep), settings, isolate, timeout, name)
    if callable(inputs):
        inputs = inputs()
    if isolate:
        return _isolated(torch_fn, ms_fn, list(inputs), settings, timeout, name)
    return _Probe(torch_fn, ms_fn, [Argument.of(value) for value in _listed(inputs)], settings).run(
        name
    )


class _Probe:
    def __init__(
        self, torch_fn: Any, ms_fn: Any, args: list[Argument], settings: dict[str, Any]
    ) -> None:
        self.torch_fn, self.ms_fn, self.args = torch_fn, ms_fn, args
        self.modes: Sequence[str] = settings["modes"] or ("pynative", "jit")
        self.modes_named = settings["modes"] is not None
        self.grads, self.extremes = settings["grads"], settings["extremes"]
        self.reference, self.seed = settings["reference"], settings["seed"]
        self.limits = {name: settings[name] for name in ("rtol", "atol", "reduction")}
        self.checks: list[Check] = []
        self.picture: Callable[[], Any] | None = None
        self.is_module = hasattr(torch_fn, "named_parameters")
        self.is_cell = hasattr(ms_fn, "parameters_and_names")

    def run(self, title: str) -> Report:
        stale = clear()
        if stale:
            self.checks.append(
                Check(
                    "before the probe",
                    "skipped",
                    f"an earlier MindSpore call had failed unnoticed: {stale}",
                )
            )
        if self.is_module and self.is_cell:
            self._training_flags()
            if not self._parameters():
                return Report(title, self.checks)
        truth = self._truth(self.args)
        first, again = self.call_torch(self.args), self.call_torch(self.args)
        torch_random = not _identical(first.value, again.value)
        results: list[tuple[str, _Answer]] = []
        for mode in self._usable_modes():
            answer = self.call_mindspore(self.args, mode)
            results.append((mode, answer))
            if first.value is None and answer.value is None:
                raise TypeError(
                    "both functions returned None; a probe needs functions that return a tensor "
                    "or a structure of tensors"
                )
            self._forward(mode, first, answer, truth, torch_random)
        plain = results[0][1] if results else None
        if plain is not None:
            self._receivers(first, plain)
        agreed = all(
            check.status not in ("failed", "error")
            for check in self.checks
            if check.id.startswith(("result", "repeatable"))
        )
        # a single number tells little; its gradients tell what was divided by what
        tell = agreed or (plain is not None and _size(plain.value) == 1)
        usable = plain is not None and not isinstance(first.value, Raised) and not torch_random
        if self.grads and usable and tell:
            for mode, answer in results:
                if not isinstance(answer.value, Raised):
                    self._gradients(mode, first.value, answer.value)
        if self.extremes and usable and agreed:
            self._extremes()
        return Report(title, self.checks, plot=self.picture)

    # Calls

    def call_torch(self, args: list[Argument], *, double: bool = False) -> _Answer:
        import torch

        function = self.reference if double and self.reference is not None else self.torch_fn
        if hasattr(function, "named_parameters"):
            function = copy.deepcopy(function)
            function = function.double() if double else function
        tensors = [arg.torch(double=double) for arg in args]
        with torch.no_grad():
            value = attempt(function, *tensors)
        _refuse_wrong_side(value, "torch_fn", "mindspore")
        return _Answer(value, [tensors[i] for i, arg in enumerate(args) if arg.dtype])

    def call_mindspore(self, args: list[Argument], mode: str) -> _Answer:
        tensors = [arg.mindspore() for arg in args]
        with unchanged(self.ms_fn), run_mode(mode):
            value = attempt(in_mode(self.ms_fn, mode), *tensors)
        _refuse_wrong_side(value, "ms_fn", "torch")
        return _Answer(value, [tensors[i] for i, arg in enumerate(args) if arg.dtype])

    def _truth(self, args: list[Argument]) -> Any:
        """The result in double precision, None where the function does not keep it."""
        value = self.call_torch(args, double=True).value
        if self.reference is not None and isinstance(value, Raised):
            raise ValueError(f"reference raised on float64 torch tensors: {value}")
        floats = [leaf for leaf in leaves(value) if is_floating(leaf)]
        if not floats or any(dtype(leaf) not in ("float64", "complex128") for leaf in floats):
            return None
        return value

    def _judge(self, row: str, ours: Any, torch: Any, truth: Any) -> list[Check]:
        """One row: agreement, or what differs and how far each side is from float64.

        Two results whose distance exceeds the limit still agree where MindSpore is no farther from
        float64 than a few times PyTorch is: the problem is ill-conditioned, not the port.
        """
        report = compare(ours, torch, **self.limits)
        if report.ok:
            return _folded(row, report)
        off = _distances(ours, torch, truth)
        bad = [check for check in report if check.status in ("failed", "error")]
        if off is not None and all(check.id.endswith("values") for check in bad):
            mine, theirs = off
            if mine <= _ILL_CONDITIONED * theirs:
                return [
                    Check(
                        row,
                        "ok",
                        f"as far from float64 as PyTorch: MindSpore {mine:.2g}, PyTorch "
                        f"{theirs:.2g} (relative; more than rounding alone: ill-conditioned)",
                        metrics={"mindspore_off": mine, "torch_off": theirs},
                    )
                ]
        checks = []
        shifted = self._shifted(ours) if row.startswith("result") and len(bad) == 1 else ""
        for check in bad:
            values = dict(check.__dict__)
            if shifted and not check.found:
                values["found"] = shifted
                values["remedy"] = (
                    'likely padding on the other side: pad_mode="same" with a stride pads right '
                    'and bottom; write pad_mode="pad", padding=... as PyTorch does'
                )
            values["id"] = row if len(bad) == 1 else f"{row}: {check.id}"
            if off is not None and check.id.endswith("values"):
                values["summary"] += (
                    f"; relative to float64 MindSpore is {off[0]:.2g} off, PyTorch {off[1]:.2g}"
                )
            checks.append(Check(**values))
        return checks

    def _usable_modes(self) -> Iterator[str]:
        for mode in self.modes:
            if mode != "pynative" and _is_lambda(self.ms_fn):
                self.checks.append(
                    Check(
                        f"result ({mode})",
                        "error" if self.modes_named else "skipped",
                        "not tried: MindSpore compiles a function from its source lines, and a "
                        "lambda among other code has none of its own",
                        remedy="write it as a function: def f(x): return ...",
                    )
                )
            else:
                yield mode

    # Rows

    def _training_flags(self) -> None:
        ours, theirs = bool(self.ms_fn.training), bool(self.torch_fn.training)
        matters = any(
            type(layer).__name__.startswith(_TRAINS_OTHERWISE)
            for layer in (*self.torch_fn.modules(), self.ms_fn, *self.ms_fn.cells())
        )
        if ours != theirs and not matters:
            return  # a difference without consequence
        self.checks.append(
            Check(
                "training flag",
                "ok" if ours == theirs else "failed",
                f"PyTorch {theirs}, MindSpore {ours}",
                expected="the same on both sides (a new nn.Module trains, a new nn.Cell does not)",
                remedy=f"ms_net.set_train({theirs})",
            )
        )

    def _parameters(self) -> bool:
        """Whether the weights are alike, as far as they can be paired."""
        pairs = self._paired()
        if isinstance(pairs, Check):
            self.checks.append(pairs)
            return True
        unlike = [
            f"{name} / {ours}"
            for name, ours, left, right in pairs
            if not compare(right, left.detach()).ok
        ]
        if unlike:
            self.checks.append(
                Check(
                    "parameters",
                    "failed",
                    f"{len(unlike)} of {len(pairs)} have other values: {', '.join(unlike[:4])}",
                    expected="the same weights on both sides before results are compared",
                    remedy="copy the weights first, for example "
                    "ms_net.weight.set_data(ms.Tensor(torch_net.weight.detach().numpy()))",
                )
            )
            self.checks.append(
                Check("result", "skipped", "not compared: with other weights it must differ")
            )
        return not unlike

    def _paired(self) -> list[tuple[str, str, Any, Any]] | Check:
        """Parameters of both sides in their order; a Check where they do not line up."""
        left = list(self.torch_fn.named_parameters())
        right = [(name, value) for name, value in named(self.ms_fn) if value.requires_grad]
        shapes = [tuple(value.shape) for _, value in left], [tuple(v.shape) for _, v in right]
        if shapes[0] != shapes[1]:
            return Check(
                "parameters",
                "error",
                "cannot be paired: they differ in number, order or shape",
                found="MindSpore " + ", ".join(f"{n} {tuple(v.shape)}" for n, v in right),
                expected="PyTorch " + ", ".join(f"{n} {tuple(v.shape)}" for n, v in left),
                remedy="compare layer by layer, or give functions that take the weights as inputs",
            )
        return [(ln, rn, lv, rv) for (ln, lv), (rn, rv) in zip(left, right, strict=True)]

    def _forward(
        self, mode: str, torch: _Answer, ours: _Answer, truth: Any, torch_random: bool
    ) -> None:
        row = f"result ({mode})"
        one_sided = _exceptions(row, torch.value, ours.value)
        if one_sided is not None:
            self.checks.append(one_sided)
            return
        repeated = self.call_mindspore(self.args, mode).value
        random = not _identical(ours.value, repeated)
        if random != torch_random:
            changing, steady = ("MindSpore", "PyTorch") if random else ("PyTorch", "MindSpore")
            self.checks.append(
                Check(
                    f"repeatable ({mode})",
                    "failed",
                    f"{changing} gives another result on each call, {steady} the same",
                    remedy="compare the training flags: ms_net.set_train(torch_net.training)"
                    if self.is_cell or self.is_module
                    else "",
                )
            )
            return
        if random:
            self.checks.append(self._distribution(mode, torch.value, ours.value))
            return
        rows = self._judge(row, ours.value, torch.value, truth)
        if self.picture is None or (not all(rows) and all(self.checks)):
            self.picture = compare(ours.value, torch.value, **self.limits).plot
        self.checks += rows

    def _shifted(self, ours: Any) -> str:
        """Whether MindSpore gives what PyTorch gives for the input moved by one step."""
        first = self.args[0]
        if not first.is_float or first.value.ndim < 3 or not hasattr(ours, "shape"):
            return ""
        got = to_numpy(ours)[0]
        axes = range(2 if first.value.ndim > 3 else first.value.ndim - 1, first.value.ndim)[-2:]
        for step in (-1, 1):
            for moved in dict.fromkeys((tuple(axes), *((axis,) for axis in axes))):
                array = first.value
                for axis in moved:
                    array = np.roll(array, step, axis)
                    edge = [slice(None)] * array.ndim
                    edge[axis] = slice(0, 1) if step == 1 else slice(-1, None)
                    array[tuple(edge)] = 0
                value = self.call_torch([Argument(array, first.dtype), *self.args[1:]]).value
                if not hasattr(value, "shape") or tuple(value.shape) != got.shape:
                    return ""
                want = to_numpy(value)[0]
                near = np.abs(got - want) <= 1e-4 * np.abs(want).max()
                if near.mean() >= 0.3:
                    where = " and ".join(f"axis {axis}" for axis in moved)
                    return (
                        f"MindSpore gives what PyTorch gives for the input moved by {step:+d} "
                        f"along {where} (but for the border: {near.mean():.0%} of the elements)"
                    )
        return ""

    def _distribution(self, mode: str, torch: Any, ours: Any) -> Check:
        """Two random results held against each other by zeros, mean and spread."""
        samples: list[_Array] = []
        again: tuple[tuple[Any, Callable[[], Any]], ...] = (
            (torch, lambda: self.call_torch(self.args).value),
            (ours, lambda: self.call_mindspore(self.args, mode).value),
        )
        for first, more in again:
            parts = [_flat(first)]
            while sum(map(len, parts)) < _RANDOM_SAMPLE and len(parts) < 50:
                parts.append(_flat(more()))
            samples.append(np.concatenate(parts))
        lines = []
        for what, left, right, noise in _statistics(*samples):
            if abs(left - right) > _SIGMAS * noise:
                lines.append(f"{what}: PyTorch {left:.3g}, MindSpore {right:.3g}")
        size = min(map(len, samples))
        return Check(
            f"result ({mode})",
            "failed" if lines else "ok",
            "; ".join(lines)
            or f"random on both sides; zeros, mean and spread of {size} values agree to "
            f"{_SIGMAS:g} standard errors",
            expected="the same statistics",
            remedy="name the argument: nn.Dropout(p=...); the first positional one of MindSpore is "
            "the probability to keep"
            if any(line.startswith("share of zeros") for line in lines)
            else "",
        )

    def _receivers(self, torch: _Answer, ours: _Answer) -> None:
        """Arguments that one side changes in place and the other leaves alone."""
        arrays = [arg for arg in self.args if arg.dtype]
        for i, (arg, left, right) in enumerate(zip(arrays, torch.args, ours.args, strict=True)):
            changed = [not _identical(side, arg.torch()) for side in (left, right)]
            if not any(changed):
                continue
            report = compare(right, left)
            status = "ok" if report.ok else "failed"
            left_says, right_says = ("changed it" if c else "left it alone" for c in changed)
            self.checks.append(
                Check(
                    f"argument {i} in place",
                    status,  # type: ignore[arg-type]
                    f"PyTorch {left_says}, MindSpore {right_says}"
                    + (", to other values" if all(changed) and not report.ok else ""),
                    expected="the same value in the argument after the call",
                    remedy="use the result: y = x + 1, not x.add_(1); for a Parameter "
                    "p.set_data(...) or ops.assign(p, ...)",
                )
            )

    def _gradients(self, mode: str, torch_out: Any, ms_out: Any) -> None:
        row = f"gradients ({mode})"
        outputs = leaves(torch_out)
        floating = [i for i, leaf in enumerate(outputs) if is_real(leaf)]
        positions = tuple(i for i, arg in enumerate(self.args) if arg.is_float)
        pairs = self._paired() if self.is_module and self.is_cell else []
        if isinstance(pairs, Check):
            pairs = []
        if not floating or not (positions or pairs) or len(leaves(ms_out)) != len(outputs):
            return
        rng = np.random.default_rng(self.seed)
        weights = [
            Argument(rng.normal(size=tuple(outputs[i].shape)).astype(np.float32), dtype(outputs[i]))
            for i in floating
        ]
        left = self._torch_gradients(positions, floating, weights)
        if left is None:
            return
        right = self._ms_gradients(mode, positions, pairs, floating, weights, ms_out)
        one_sided = _exceptions(row, left, right)
        if one_sided is not None:
            self.checks.append(one_sided)
            return
        if isinstance(left, Raised):
            return
        truth = self._torch_gradients(positions, floating, weights, double=True)
        names = [f"input {i}" for i in positions] + [f"{a} / {b}" for a, b, _, _ in pairs]
        if truth is None or isinstance(truth, Raised) or len(truth) != len(left):
            truth = [None] * len(left)
        bad: list[Check] = []
        worst = 0.0
        for name, t, m, exact in zip(names, left, right, truth, strict=True):
            rows = self._judge(f"{row}: {name}", m, t, exact)
            if all(rows):
                worst = max(worst, *(check.metrics.get("limits", 0.0) for check in rows))
            else:
                bad += rows
        self.checks += bad or [
            Check(
                row,
                "ok",
                f"{len(names)} agree ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})",
                metrics={"limits": worst},
            )
        ]

    def _torch_gradients(
        self,
        positions: tuple[int, ...],
        floating: list[int],
        weights: list[Argument],
        *,
        double: bool = False,
    ) -> Any:
        import torch

        function = self.reference if double and self.reference is not None else self.torch_fn
        parameters: list[Any] = []
        if hasattr(function, "named_parameters"):
            function = copy.deepcopy(function)
            function = function.double() if double else function
            if self.is_cell:
                parameters = list(function.parameters())
        tensors = [arg.torch(double=double) for arg in self.args]
        sources = [tensors[i].requires_grad_() for i in positions]
        # clones, so that an in-place function is not refused on a leaf
        given = [t.clone() if i in positions else t for i, t in enumerate(tensors)]

        def gradients() -> Any:
            out = leaves(function(*given))
            total = sum(
                (out[i] * weight.torch(double=double)).sum()
                for i, weight in zip(floating, weights, strict=True)
            )
            if not total.requires_grad:
                return None
            found = torch.autograd.grad(total, [*sources, *parameters], allow_unused=True)
            return [
                torch.zeros_like(leaf) if gradient is None else gradient
                for leaf, gradient in zip([*sources, *parameters], found, strict=True)
            ]

        return attempt(gradients)

    def _ms_gradients(
        self,
        mode: str,
        positions: tuple[int, ...],
        pairs: list[tuple[str, str, Any, Any]],
        floating: list[int],
        weights: list[Argument],
        ms_out: Any,
    ) -> Any:
        import mindspore as ms

        function = self.ms_fn
        tensors = [weight.mindspore() for weight in weights]
        summed = (
            weighted_tuple(function, tuple(floating), tuple(tensors))
            if isinstance(ms_out, (tuple, list))
            else weighted(function, tensors[0])
        )
        parameters = [p for _, _, _, p in pairs]
        with unchanged(self.ms_fn), run_mode(mode):
            if mode == "graph":
                summed = as_cell(summed)
            gradient = ms.grad(summed, positions or None, parameters or None)
            if mode == "jit":
                gradient = ms.jit(gradient)
            found = attempt(gradient, *[arg.mindspore() for arg in self.args])
        if isinstance(found, Raised):
            return found
        if positions and parameters:
            return [*leaves(found[0]), *leaves(found[1])]
        return leaves(found)

    def _extremes(self) -> None:
        floats = [arg for arg in self.args if arg.is_float]
        if not floats:
            return
        agreed: list[str] = []
        for what, args in self._extreme_arguments():
            torch, ours = self.call_torch(args).value, self.call_mindspore(args, "pynative").value
            row = f"extreme: {what}"
            one_sided = _exceptions(row, torch, ours)
            if one_sided is not None and not one_sided:
                self.checks.append(one_sided)
                continue
            rows = [] if one_sided else self._judge(row, ours, torch, self._truth(args))
            if all(rows):
                agreed.append(what)
            else:
                self.checks += rows if what not in ("NaN", "infinite") else [_hidden(row, rows[0])]
        if agreed:
            self.checks.append(Check("extremes", "ok", f"alike on {', '.join(agreed)} inputs"))
        self._scan()

    def _scan(self) -> None:
        """Many values from -12 to 12: errors in one stretch only, and values out of range."""
        args = self._longer() or self.args
        spread = np.linspace(-_SCAN, _SCAN, max(arg.value.size for arg in args if arg.is_float))
        args = [
            Argument(np.resize(spread, arg.value.shape).astype(arg.value.dtype), arg.dtype)
            if arg.is_float
            else arg
            for arg in args
        ]
        torch, ours = self.call_torch(args).value, self.call_mindspore(args, "pynative").value
        if isinstance(torch, Raised) or isinstance(ours, Raised):
            return
        truth = self._truth(args)
        row = f"scan from {-_SCAN:g} to {_SCAN:g}"
        self.checks += self._judge(row, ours, torch, truth)
        if truth is not None:
            self._range(truth, ours)

    def _longer(self) -> list[Argument] | None:
        """The arguments repeated along the first axis; None where that is no batch axis."""
        length = _length(self.args)
        floats = [arg.value.size for arg in self.args if arg.is_float]
        if not length or not max(floats) or max(floats) >= _SCAN_SIZE:
            return None
        times = -(-_SCAN_SIZE // max(floats))
        args = [
            Argument(np.repeat(arg.value, times, axis=0), arg.dtype)
            if arg.dtype and arg.value.shape[:1] == (length,)
            else arg
            for arg in self.args
        ]
        out = self.call_torch(args).value
        return None if isinstance(out, Raised) else args

    def _extreme_arguments(self) -> Iterator[tuple[str, list[Argument]]]:
        length = _length(self.args)

        def changed(change: Callable[[_Array], _Array]) -> list[Argument]:
            return [
                Argument(change(arg.value).astype(arg.value.dtype), arg.dtype)
                if arg.is_float
                else arg
                for arg in self.args
            ]

        if length is not None:
            yield (
                "empty",
                [
                    Argument(arg.value[:0], arg.dtype)
                    if arg.dtype and arg.value.shape[:1] == (length,)
                    else arg
                    for arg in self.args
                ],
            )
        yield "zero", changed(np.zeros_like)
        yield "tiny", changed(lambda a: a * 1e-6)
        yield "large", changed(lambda a: a * 1e3)

        def planted(*values: float) -> Callable[[_Array], _Array]:
            def plant(array: _Array) -> _Array:
                array = array.copy()
                array.reshape(-1)[: len(values)] = values[: array.size]
                return array

            return plant

        yield "NaN", changed(planted(np.nan))
        yield "infinite", changed(planted(np.inf, -np.inf))

    def _range(self, exact: Any, ours: Any) -> None:
        """A value beyond a bound where the float64 function saturates, such as a tanh above 1."""
        for truth, value in zip(leaves(exact), leaves(ours), strict=False):
            if not is_real(truth) or not is_real(value):
                continue
            true, got = to_numpy(truth)[0], to_numpy(value)[0].astype(np.float64)
            if true.size < 100 or true.shape != got.shape or not np.isfinite(true).all():
                continue
            slack = 2 * EPS[dtype(value)] * np.abs(true).max()
            for name, bound, beyond in (
                ("above", true.max(), float(got.max() - true.max())),
                ("below", true.min(), float(true.min() - got.min())),
            ):
                # it saturates where many inputs that are not equal come this near to the bound
                flat = np.mean(np.abs(true - bound) <= slack) >= 0.1
                if flat and np.ptp(true) > slack and beyond > slack:
                    self.checks.append(
                        Check(
                            f"range {name}",
                            "failed",
                            f"MindSpore goes {beyond:.3g} {name} {bound:.6g}, which the function "
                            "never passes",
                            expected=f"none {name} {bound:.6g}: a later log or acos gives NaN",
                            remedy=f"clip the result: ops.clamp(y, {true.min():.6g}, "
                            f"{true.max():.6g})",
                            metrics={"beyond": beyond},
                        )
                    )


@dataclass(frozen=True)
class _Answer:
    value: Any
    args: list[Any]


def _length(args: list[Argument]) -> int:
    """Length of the first axis, 0 where the first array has none."""
    shapes = [arg.value.shape for arg in args if arg.is_float]
    return shapes[0][0] if shapes and shapes[0] else 0


def _size(value: Any) -> int:
    return sum(to_numpy(leaf)[0].size for leaf in leaves(value) if hasattr(leaf, "dtype"))


def _flat(value: Any) -> _Array:
    return np.concatenate([to_numpy(leaf)[0].astype(np.float64).ravel() for leaf in leaves(value)])


def _identical(left: Any, right: Any) -> bool:
    """Equal bit by bit but for the sign of zero; exceptions by type."""
    if isinstance(left, Raised) or isinstance(right, Raised):
        return type(left) is type(right) and left.type == right.type
    ours, theirs = leaves(left), leaves(right)
    if len(ours) != len(theirs):
        return False
    for a, b in zip(ours, theirs, strict=True):
        if not (hasattr(a, "dtype") and hasattr(b, "dtype")):
            if a != b:
                return False
        elif not np.array_equal(to_numpy(a)[0], to_numpy(b)[0], equal_nan=is_floating(a)):
            return False
    return True


def _statistics(left: _Array, right: _Array) -> Iterator[tuple[str, float, float, float]]:
    """Name, both values and the standard error of their difference."""
    size = min(len(left), len(right))
    for what, score in (
        ("share of zeros", lambda a: (a == 0).astype(np.float64)),
        ("mean", lambda a: a),
        ("mean square", np.square),
    ):
        a, b = score(left), score(right)
        yield what, a.mean(), b.mean(), float(np.sqrt((a.var() + b.var() + 1e-12) / size))


def _exceptions(row: str, torch: Any, ours: Any) -> Check | None:
    """The Check where at least one side raised; None where both gave values."""
    if isinstance(ours, Raised) and isinstance(torch, Raised):
        both = f"PyTorch {torch}; MindSpore {ours}"
        if {ours.type, torch.type} <= {"TypeError", "AttributeError", "NameError"}:
            return Check(
                row,
                "error",
                f"neither could be called: {both}",
                remedy="look at the two functions and their arguments: nothing was compared",
            )
        return Check(row, "ok", f"both refuse: {both}")
    if isinstance(ours, Raised):
        return Check(
            row,
            "failed",
            f"MindSpore raises, PyTorch returns a value: {ours}",
            found=str(ours),
            expected="a value on both sides",
        )
    if isinstance(torch, Raised):
        return Check(
            row,
            "failed",
            f"PyTorch raises {torch.type}, MindSpore returns a value",
            found="a value",
            expected=str(torch),
        )
    return None


def _distances(ours: Any, torch: Any, truth: Any) -> tuple[float, float] | None:
    """How far each side is from float64, relative to its rms; None where that says nothing."""
    if truth is None:
        return None
    worst = [0.0, 0.0]
    for exact, *sides in zip(leaves(truth), leaves(ours), leaves(torch), strict=False):
        if not (is_real(exact) and all(is_real(side) for side in sides)):
            continue
        true = to_numpy(exact)[0].astype(np.float64)
        finite = np.isfinite(true)
        size = float(np.sqrt(np.mean(np.square(true[finite])))) if finite.any() else 0.0
        for i, side in enumerate(sides):
            got = to_numpy(side)[0].astype(np.float64)
            if got.shape != true.shape or not np.isfinite(got[finite]).all():
                return None
            if size > 0:
                worst[i] = max(worst[i], float(np.abs(got - true)[finite].max(initial=0.0)) / size)
    return worst[0], worst[1]


def _hidden(row: str, check: Check) -> Check:
    """NaN and Inf in the input end up elsewhere: what to do is not what an overflow needs."""
    return Check(
        row,
        check.status,
        check.summary,
        check.found,
        check.expected,
        "do not rely on NaN or Inf travelling through this operator: test its input, "
        "ops.isfinite(x).all()",
        check.metrics,
    )


def _folded(row: str, report: Report) -> list[Check]:
    """A comparison that is ok as one row: that of the values nearest to their limit."""
    values = [check for check in report if check.id.endswith("values")]
    best = max(values, key=lambda check: check.metrics.get("limits", 0.0), default=None)
    if best is None:
        return [Check(row, "ok", report.headline())]
    return [Check(row, "ok", best.summary, metrics=best.metrics)]


# Bad input


def _check_sides(torch_fn: Any, ms_fn: Any) -> None:
    for name, thing, wrong in (("torch_fn", torch_fn, "mindspore"), ("ms_fn", ms_fn, "torch")):
        if not callable(thing):
            raise TypeError(
                f"{name} is {type(thing).__name__}, which cannot be called; give a function, "
                "an nn.Module or an nn.Cell"
            )
        owner = kind(thing)
        if owner == wrong and not isinstance(thing, type):
            right = "PyTorch" if name == "torch_fn" else "MindSpore"
            other = "MindSpore" if wrong == "mindspore" else "PyTorch"
            raise TypeError(
                f"{name} is a {type(thing).__name__} of {other}, {name} belongs to {right}: "
                "the order is probe(torch_fn, ms_fn, inputs)"
            )


def _refuse_wrong_side(value: Any, name: str, wrong: str) -> None:
    for leaf in leaves(value):
        if kind(leaf) == wrong:
            raise TypeError(
                f"{name} returned a {wrong} tensor; each side computes with its own framework"
            )
        plain = leaf is None or isinstance(leaf, (bool, int, float, complex, Raised))
        if not plain and not hasattr(leaf, "dtype"):
            raise TypeError(
                f"{name} returned {type(leaf).__name__}, expected tensors or a structure of them"
            )


def _listed(inputs: Any) -> Sequence[Any]:
    if not isinstance(inputs, (list, tuple)):
        raise TypeError(
            f"inputs is the list of arguments, not {type(inputs).__name__}; for one array write [x]"
        )
    return inputs


def _is_lambda(function: Any) -> bool:
    return getattr(function, "__name__", "") == "<lambda>"


def _name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


# A sweep, and a process of its own


def _sweep(
    torch_fn: Any,
    ms_fn: Any,
    inputs: Any,
    grid: dict[str, Sequence[Any]],
    settings: dict[str, Any],
    isolate: bool,
    timeout: float,
    title: str,
) -> Report:
    if not grid or not all(len(values) for values in grid.values()):
        raise ValueError("sweep maps each keyword to the values it takes, at least one of each")
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    checks = []
    for point in points:
        label = ", ".join(f"{name}={value}" for name, value in point.items())
        made = [attempt(make, **point) for make in (torch_fn, ms_fn)]
        given = inputs(**point) if callable(inputs) else inputs
        refused = _exceptions(label, *made)
        if refused is not None:
            checks.append(refused)
            continue
        for side, thing in zip(("torch_fn", "ms_fn"), made, strict=True):
            if not callable(thing):
                raise TypeError(
                    f"with a sweep {side}({label}) makes the thing to probe: a function, module "
                    f"or cell, not {type(thing).__name__}"
                )
        plain = {**settings, "extremes": False}
        report = probe(made[0], made[1], given, isolate=isolate, timeout=timeout, **plain)
        bad = [check for check in report if check.status in ("failed", "error")]
        checks.append(
            Check(
                label,
                report.worst if bad else "ok",
                "; ".join(f"{check.id}: {check.summary}" for check in bad[:2])
                or f"{sum(map(bool, report))} checks agree",
                remedy=bad[0].remedy if bad else "",
            )
        )
    return Report(title, checks, plot=lambda: _draw_map(title, grid, checks))


def _draw_map(title: str, grid: dict[str, Sequence[Any]], checks: list[Check]) -> Any:
    """Green where both agree, red where not: the last name across, the others down."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap

    names = list(grid)
    columns = list(grid[names[-1]])
    rows = list(itertools.product(*(grid[name] for name in names[:-1])))
    level = {"ok": 0, "skipped": 1, "error": 2, "failed": 3}
    table = np.array([level[check.status] for check in checks]).reshape(len(rows), len(columns))
    figure, axes = plt.subplots(
        figsize=(1.8 + 0.8 * len(columns), 1.2 + 0.36 * len(rows)), layout="constrained"
    )
    colours = ListedColormap(["#7fc97f", "#dddddd", "#beaed4", "#ef6548"])
    axes.imshow(table, cmap=colours, vmin=0, vmax=3, aspect="auto")
    for (i, j), value in np.ndenumerate(table):
        axes.text(j, i, ("=", "?", "!", "≠")[value], ha="center", va="center")
    axes.set_xticks(range(len(columns)), [str(value) for value in columns])
    axes.set_xlabel(names[-1])
    labels = [", ".join(str(value) for value in row) for row in rows]
    axes.set_yticks(range(len(rows)), labels if names[:-1] else [""])
    axes.set_ylabel(", ".join(names[:-1]))
    axes.set_xticks(np.arange(-0.5, len(columns)), minor=True)
    axes.set_yticks(np.arange(-0.5, len(rows)), minor=True)
    axes.grid(which="minor", color="white", linewidth=2)
    axes.tick_params(which="both", length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_title(f"{title}\n= agree   ≠ differ   ! undecided", fontsize=10)
    plt.close(figure)
    return figure


_worker: Any = None


def _isolated(
    torch_fn: Any,
    ms_fn: Any,
    inputs: list[Any],
    settings: dict[str, Any],
    timeout: float,
    title: str,
) -> Report:
    global _worker
    from msnb import isolate

    if hasattr(ms_fn, "construct"):
        raise TypeError(
            f"isolate=True sends ms_fn to another process, and a {type(ms_fn).__name__} cannot "
            "travel: give a function that builds it and calls it"
        )
    if _worker is None:
        _worker = isolate.Worker()
    arrays = [Argument.of(value) for value in _listed(inputs)]
    outcome = _worker.run(_remote, torch_fn, ms_fn, arrays, settings, title, timeout=timeout)
    if outcome.status == "ok":
        return Report.from_json(outcome.value)
    if outcome.error and outcome.error.type in ("TypeError", "ValueError"):
        raise {"TypeError": TypeError, "ValueError": ValueError}[outcome.error.type](
            outcome.error.message
        )
    return Report(title, [Check("process", "failed", outcome.describe().partition("\n")[0])])


def _remote(
    torch_fn: Any, ms_fn: Any, args: list[Argument], settings: dict[str, Any], title: str
) -> dict[str, Any]:
    return _Probe(torch_fn, ms_fn, args, settings).run(title).to_json()

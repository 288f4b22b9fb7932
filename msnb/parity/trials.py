"""One probe as it runs: both functions are called, again and again, and each question is a row."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from msnb.parity import extremes
from msnb.parity.arrays import compare
from msnb.parity.calls import (
    Argument,
    Raised,
    as_cell,
    attempt,
    cells,
    clear,
    dtype,
    in_mode,
    is_cell,
    is_floating,
    is_module,
    is_real,
    is_statistic,
    kind,
    leaves,
    named,
    nets_of,
    places,
    run_mode,
    tidy,
    training,
    unchanged,
    weighted,
)
from msnb.parity.causes import Suspects, name_cause, name_gradient_cause
from msnb.parity.judging import distribution, exceptions, flat, identical, judge, size
from msnb.report import Check, Report

_RANDOM_SAMPLE = 2000  # elements gathered before two random operators are compared
_TRAINS_OTHERWISE = ("Dropout", "BatchNorm", "InstanceNorm", "SyncBatchNorm", "LSTM", "GRU", "RNN")
_MOVES = 3  # random directions in which inputs are moved by their last bit

_Pairs = list[tuple[str, str, Any, Any]]


@dataclass(frozen=True)
class Settings:
    """What ``probe`` was asked for."""

    modes: tuple[str, ...] | None = None
    grads: bool = True
    extremes: bool = True
    reference: Any = None
    rtol: float | None = None
    atol: float | None = None
    reduction: int | None = None
    seed: int = 0
    isolated: bool = False  # in a process of its own, which may be put at risk

    @property
    def limits(self) -> dict[str, Any]:
        return {"rtol": self.rtol, "atol": self.atol, "reduction": self.reduction}


@dataclass(frozen=True)
class _Answer:
    value: Any
    args: list[Any]  # the arrays as the call left them


class Trial:
    """The two functions, their arguments, and the rows found so far."""

    def __init__(self, torch_fn: Any, ms_fn: Any, args: list[Argument], settings: Settings) -> None:
        self.torch_fn, self.ms_fn, self.args, self.settings = torch_fn, ms_fn, args, settings
        self.nets = is_module(torch_fn) and is_cell(ms_fn)
        self.checks: list[Check] = []
        self.picture: Callable[[], Any] | None = None
        self._modes: dict[str, Any] = {}  # the function in each mode, compiled once
        self._ms_nets = nets_of(ms_fn)
        self._torch_nets = [net for net in nets_of(torch_fn) if net is not torch_fn]
        self._torch_nets += nets_of(settings.reference)
        self._rng = np.random.default_rng(settings.seed)

    def run(self, title: str) -> Report:
        """Ask everything, in an order in which one answer decides whether the next is asked."""
        import torch

        stale = clear()
        if stale:
            self.checks.append(
                Check(
                    "before the probe",
                    "skipped",
                    f"not this operator: an earlier MindSpore call had failed unnoticed ({stale}); "
                    "its error would have been raised by the next call",
                    remedy="ms.runtime.launch_blocking() at the start of the process makes every "
                    "error appear where it happens",
                )
            )
        with tidy(), torch.random.fork_rng(devices=[]):
            self._ask()
        return Report(title, self.checks, plot=self.picture)

    def _ask(self) -> None:
        if self.nets:
            self._training_flags()
            if not self._parameters():
                return
        first = self.call_torch(self.args)
        torch_random = not identical(first.value, self.call_torch(self.args).value)
        truth = None if torch_random else self.truth(self.args)
        results: list[tuple[str, _Answer]] = []
        for mode in self.settings.modes or ("pynative", "jit"):
            answer = self.call_mindspore(self.args, mode)
            skipped = self._not_compiled(mode, answer.value)
            if skipped is not None:
                self.checks.append(skipped)
                continue
            self._refuse(first.value, answer.value)
            results.append((mode, answer))
            self._forward(mode, first.value, answer.value, truth, torch_random)
        if not results:
            return
        plain = results[0][1]
        self._receivers(first, plain)
        agreed = all(
            check.status not in ("failed", "error")
            for check in self.checks
            if check.id.startswith(("result", "repeatable"))
        )
        if self.nets:
            self._evaluation(agreed)
            self._running_statistics()
        if torch_random or isinstance(first.value, Raised):
            return
        # a single number tells little; its gradients tell what was divided by what
        if self.settings.grads and (agreed or size(plain.value) == 1):
            for mode, answer in results:
                if not isinstance(answer.value, Raised):
                    self._gradients(mode, first.value, answer.value)
        if self.settings.extremes and agreed and any(arg.dtype for arg in self.args):
            self._extremes()

    # Calls

    def call_torch(self, args: list[Argument], *, double: bool = False) -> _Answer:
        import torch

        tensors = [arg.torch(double=double) for arg in args]
        with torch.no_grad(), unchanged(self._torch_nets):
            value = attempt(self._torch_function(double), *tensors)
        _refuse_wrong_side(value, "torch_fn", "mindspore")
        return _Answer(value, [tensors[i] for i, arg in enumerate(args) if arg.dtype])

    def _torch_function(self, double: bool) -> Any:
        reference = self.settings.reference
        function = reference if double and reference is not None else self.torch_fn
        if is_module(function):
            function = copy.deepcopy(function)
            function = function.double() if double else function
        return function

    def call_mindspore(self, args: list[Argument], mode: str = "pynative") -> _Answer:
        tensors = [arg.mindspore() for arg in args]
        if mode not in self._modes:
            self._modes[mode] = in_mode(self.ms_fn, mode)
        with unchanged(self._ms_nets), run_mode(mode):
            value = attempt(self._modes[mode], *tensors)
        _refuse_wrong_side(value, "ms_fn", "torch")
        return _Answer(value, [tensors[i] for i, arg in enumerate(args) if arg.dtype])

    def truth(self, args: list[Argument]) -> Any:
        """The result in double precision, None where the function does not keep it."""
        value = self.call_torch(args, double=True).value
        if self.settings.reference is not None and isinstance(value, Raised):
            raise ValueError(f"reference raised on float64 torch tensors: {value}")
        return value if _is_double(value) else None

    def _moved(self, args: list[Argument], truth: Callable[[list[Argument]], Any]) -> list[Any]:
        """The truth for floating inputs moved by their last bit, in random directions."""
        found = []
        for _ in range(_MOVES):
            moved = []
            for arg in args:
                if arg.is_float and arg.dtype in _LAST_BIT:
                    shift = self._rng.choice([-1.0, 1.0], arg.value.shape) * _LAST_BIT[arg.dtype]
                    # float64, and no longer of the argument's own dtype: it must not be rounded
                    moved.append(Argument(arg.value.astype(np.float64) * (1 + shift), "float64"))
                else:
                    moved.append(arg)
            found.append(truth(moved))
        return [value for value in found if value is not None and not isinstance(value, Raised)]

    def _judge(
        self, row: str, ours: Any, torch: Any, truth: Any, args: list[Argument]
    ) -> list[Check]:
        return judge(
            row,
            ours,
            torch,
            truth,
            lambda: self._moved(args, self.truth),
            self.settings.limits,
            name=self._truth_name,
        )

    @property
    def _truth_name(self) -> str:
        return "PyTorch in float64" if self.settings.reference is None else "the reference"

    def _suspects(self, args: list[Argument]) -> Suspects:
        return Suspects(
            lambda args: self.call_torch(args).value,
            lambda args: self.call_mindspore(args).value,
            args,
            self.torch_fn,
            self.ms_fn,
        )

    def _named(
        self, checks: list[Check], torch: Any, ours: Any, args: list[Argument]
    ) -> list[Check]:
        """The first Check that is bad with its cause, where one is found."""
        if len(checks) != 1 or checks[0].status != "failed" or not args:
            return checks
        return [name_cause(checks[0], torch, ours, self._suspects(args))]

    # What cannot be probed

    def _refuse(self, torch: Any, ours: Any) -> None:
        """Functions that return nothing, or that compute with the other framework."""
        for name, value in (("torch_fn", torch), ("ms_fn", ours)):
            if value is None:
                raise TypeError(
                    f"{name} returned None; a probe needs functions that return a tensor or a "
                    "structure of tensors: is a return missing?"
                )
        for name, value, other in (("torch_fn", torch, "mindspore"), ("ms_fn", ours, "torch")):
            if not isinstance(value, Raised) or value.type not in ("TypeError", "AttributeError"):
                continue
            function = self.torch_fn if other == "mindspore" else self.ms_fn
            given = [getattr(arg, other)() for arg in self.args]
            with unchanged(nets_of(function)):
                crossed = attempt(function, *given)
            if any(kind(leaf) == other for leaf in leaves(crossed)):
                right, wrong = ("PyTorch", "MindSpore")[:: 1 if name == "torch_fn" else -1]
                raise TypeError(
                    f"{name} computes with {wrong}, {name} belongs to {right}: the order is "
                    "probe(torch_fn, ms_fn, inputs), and each function is called with its own "
                    f"framework's tensors ({value})"
                )

    def _not_compiled(self, mode: str, value: Any) -> Check | None:
        """A lambda, or a function whose source MindSpore cannot read: not the operator's fault."""
        if mode == "pynative" or not isinstance(value, Raised):
            return None
        if "Parse Lambda Function Fail" in value.message:
            why = (
                "MindSpore compiles a function from its source lines, and a lambda among other "
                "code has none of its own"
            )
        elif "NoneType" in value.message and "std::string" in value.message:
            why = "MindSpore compiles a function from its source, which is not to be found"
        else:
            return None
        return Check(
            f"result ({mode})",
            "error" if self.settings.modes else "skipped",
            f"not tried: {why}",
            remedy="write it as a function: def f(x): return ...",
        )

    # Rows

    def _training_flags(self) -> None:
        ours, theirs = bool(self.ms_fn.training), bool(self.torch_fn.training)
        if ours != theirs and not self._trains_otherwise():
            return  # a difference without consequence
        self.checks.append(
            Check(
                "training flag",
                "ok" if ours == theirs else "failed",
                f"PyTorch {theirs}, MindSpore {ours}",
                expected="the same on both sides (a new nn.Module trains, a new nn.Cell does not)",
                remedy="" if ours == theirs else f"ms_net.set_train({theirs})",
            )
        )

    def _trains_otherwise(self) -> bool:
        layers = (*self.torch_fn.modules(), *cells(self.ms_fn))
        return any(type(layer).__name__.startswith(_TRAINS_OTHERWISE) for layer in layers)

    def _parameters(self) -> bool:
        """Whether the weights and statistics are alike, as far as they can be paired."""
        pairs = self._paired()
        if isinstance(pairs, Check):
            self.checks.append(pairs)
            return True
        statistics = self._paired(statistics=True)
        both = pairs + (statistics if isinstance(statistics, list) else [])
        unlike = [
            f"{name} / {ours}"
            for name, ours, left, right in both
            if not compare(right.reshape(tuple(left.shape)), left.detach()).ok
        ]
        if unlike:
            self.checks.append(
                Check(
                    "parameters",
                    "failed",
                    f"{len(unlike)} of {len(both)} have other values: {', '.join(unlike[:4])}",
                    expected="the same weights on both sides before results are compared",
                    remedy="msnb.copy_weights(torch_net, ms_net)",
                )
            )
            self.checks.append(
                Check("result", "skipped", "not compared: with other weights it must differ")
            )
        return not unlike

    def _paired(self, *, statistics: bool = False) -> _Pairs | Check:
        """Parameters of both sides in their order; a Check where they do not line up."""
        left = list(self.torch_fn.named_parameters())
        if statistics:
            left = [(n, b) for n, b in self.torch_fn.named_buffers() if is_floating(b)]
        right = [
            (name, value) for name, value in named(self.ms_fn) if is_statistic(name) == statistics
        ]
        # without axes of length 1, which a Conv1d of MindSpore has one more of
        shapes = [[[n for n in v.shape if n != 1] for _, v in side] for side in (left, right)]
        if shapes[0] != shapes[1]:
            return Check(
                "statistics" if statistics else "parameters",
                "error",
                "cannot be paired: they differ in number, order or shape",
                found="MindSpore " + ", ".join(f"{n} {tuple(v.shape)}" for n, v in right),
                expected="PyTorch " + ", ".join(f"{n} {tuple(v.shape)}" for n, v in left),
                remedy="compare layer by layer, or give functions that take the weights as inputs",
            )
        return [(ln, rn, lv, rv) for (ln, lv), (rn, rv) in zip(left, right, strict=True)]

    def _forward(self, mode: str, torch: Any, ours: Any, truth: Any, torch_random: bool) -> None:
        row = f"result ({mode})"
        one_sided = exceptions(row, torch, ours)
        if one_sided is not None:
            self.checks += self._named([one_sided], torch, ours, self.args)
            return
        random = not identical(ours, self.call_mindspore(self.args, mode).value)
        if random != torch_random:
            changing, steady = ("MindSpore", "PyTorch") if random else ("PyTorch", "MindSpore")
            remedy = "a random function that is compiled draws once, at compile time: use ops.rand"
            if self.nets:
                remedy = "compare the training flags: ms_net.set_train(torch_net.training)"
            self.checks.append(
                Check(
                    f"repeatable ({mode})",
                    "failed",
                    f"{changing} gives another result on each call, {steady} the same",
                    expected="the same on both sides, call by call",
                    remedy=remedy if torch_random else "look for what changes between two calls",
                )
            )
            return
        if random:
            self.checks.append(self._distribution(mode, torch, ours))
            return
        rows = self._judge(row, ours, torch, truth, self.args)
        if self.picture is None or (not all(rows) and all(self.checks)):
            self.picture = compare(ours, torch, **self.settings.limits).plot
        self.checks += self._named(rows, torch, ours, self.args)

    def _distribution(self, mode: str, torch: Any, ours: Any) -> Check:
        row = f"result ({mode})"
        report = compare(ours, torch)
        shapes = [c for c in report if c.status == "failed" and not c.id.endswith("values")]
        if shapes:
            values = shapes[0].__dict__
            return Check(**{**values, "id": row})
        samples = []
        again: tuple[tuple[Any, Callable[[], Any]], ...] = (
            (torch, lambda: self.call_torch(self.args).value),
            (ours, lambda: self.call_mindspore(self.args, mode).value),
        )
        for first, more in again:
            parts = [flat(first)]
            while sum(map(len, parts)) < _RANDOM_SAMPLE and len(parts) < 50:
                parts.append(flat(more()))
            samples.append(np.concatenate(parts))
        return distribution(row, *samples)

    def _receivers(self, torch: _Answer, ours: _Answer) -> None:
        """Arguments that one side changes in place and the other leaves alone."""
        arrays = [(i, arg) for i, arg in enumerate(self.args) if arg.dtype]
        for (i, arg), left, right in zip(arrays, torch.args, ours.args, strict=True):
            changed = [not identical(side, arg.torch()) for side in (left, right)]
            if not any(changed):
                continue
            agree = compare(right, left).ok
            left_says, right_says = ("changed it" if c else "left it alone" for c in changed)
            self.checks.append(
                Check(
                    f"argument {i} in place",
                    "ok" if agree else "failed",
                    f"PyTorch {left_says}, MindSpore {right_says}"
                    + (", to other values" if all(changed) and not agree else ""),
                    expected="the same value in the argument after the call",
                    remedy=""
                    if agree
                    else "use the result: y = x + 1, not x.add_(1); for a Parameter "
                    "ops.assign(p, ...)",
                )
            )

    def _evaluation(self, agreed: bool) -> None:
        """Nets that train now: called twice in evaluation mode, where nothing may be random."""
        if not (self.torch_fn.training and self.ms_fn.training and self._trains_otherwise()):
            return
        row = "result (evaluation)"
        with training(self.torch_fn, False), training(self.ms_fn, False):
            torch = [self.call_torch(self.args).value for _ in range(2)]
            ours = [self.call_mindspore(self.args).value for _ in range(2)]
            truth = self.truth(self.args)
        one_sided = exceptions(row, torch[0], ours[0])
        if one_sided is not None:
            self.checks.append(one_sided)
            return
        random = [not identical(*torch), not identical(*ours)]
        if any(random):
            who = " and ".join(np.array(["PyTorch", "MindSpore"])[random])
            self.checks.append(
                Check(
                    row,
                    "failed",
                    f"{who} gives another result on each call in evaluation mode",
                    expected="the same result: dropout and its like are off",
                    remedy="look for functional dropout without training=, or a layer that "
                    "set_train(False) does not reach, such as one in a Python list",
                )
            )
            return
        self.checks += judge(
            row, ours[0], torch[0], truth, list, self.settings.limits, name=self._truth_name
        )

    def _running_statistics(self) -> None:
        """Running means and variances after one call in training mode."""
        before = self._paired(statistics=True)
        if isinstance(before, Check):
            self.checks.append(before)
            return
        if not before:
            return
        start = [left.detach().clone().numpy() for _, _, left, _ in before]
        with training(self.torch_fn, True), training(self.ms_fn, True):
            import torch

            with torch.no_grad():
                called = [attempt(self.torch_fn, *[arg.torch() for arg in self.args])]
            with run_mode("pynative"):
                called.append(attempt(self.ms_fn, *[arg.mindspore() for arg in self.args]))
            refused = exceptions("running statistics", *called)
            after = [
                (left.detach().clone().numpy(), right.asnumpy().copy())
                for _, _, left, right in before
            ]
        if refused is not None:
            self.checks.append(refused)
            return
        bad = []
        for (name, ours, _, _), old, (left, right) in zip(before, start, after, strict=True):
            report = compare(right, left, names=("MindSpore", "PyTorch"))
            if not report.ok:
                bad.append((f"{name} / {ours}", old, left, right, report["values"]))
        if not bad:
            summary = f"{len(before)} agree after one call in training mode"
            self.checks.append(Check("running statistics", "ok", summary))
            return
        name, old, left, right, values = bad[0]
        found, remedy = values.found, values.remedy
        step = np.abs(left - old) > 1e-3 * max(float(np.abs(left - old).max()), 1e-30)
        ratio = float(np.median((right - old)[step] / (left - old)[step])) if step.any() else 1.0
        momenta = {
            layer.momentum
            for layer in self.torch_fn.modules()
            if isinstance(getattr(layer, "momentum", None), float)
        }
        if abs(ratio - 1) > 1e-3 and np.allclose(
            (right - old)[step], ratio * (left - old)[step], 1e-3
        ):
            found = f"MindSpore moves {ratio:.3g} times as far from the old value as PyTorch"
            for momentum in momenta:
                if abs(ratio * momentum - (1 - momentum)) < 1e-3:
                    remedy = (
                        "momentum has the opposite meaning: PyTorch's is the share of the new "
                        f"batch, MindSpore's the share that is kept; write momentum="
                        f"{1 - momentum:g}"
                    )
                    break
            else:
                remedy = "another momentum: MindSpore's is 1 minus PyTorch's"
        self.checks.append(
            Check(
                "running statistics",
                "failed",
                f"{len(bad)} of {len(before)} differ after one call in training mode; "
                f"{name}: {values.summary}",
                found,
                "the same statistics",
                remedy,
                values.metrics,
            )
        )

    # Gradients

    def _gradients(self, mode: str, torch_out: Any, ms_out: Any) -> None:
        row = f"gradients ({mode})"
        outputs = places(torch_out)
        floating = [i for i, (_, leaf) in enumerate(outputs) if is_real(leaf)]
        positions = tuple(i for i, arg in enumerate(self.args) if arg.is_float)
        pairs = self._paired() if self.nets else []
        if isinstance(pairs, Check):
            pairs = []
        pairs = [pair for pair in pairs if pair[2].requires_grad and pair[3].requires_grad]
        if not floating or not (positions or pairs) or len(leaves(ms_out)) != len(outputs):
            return
        weights = [self._weight(outputs[i][1]) for i in floating]
        where = tuple(places(ms_out)[i][0] for i in floating)
        left = self._torch_gradients(self.args, positions, floating, weights, pairs)
        if left is None:
            return
        right = self._ms_gradients(mode, positions, pairs, where, weights)
        one_sided = exceptions(row, left, right)
        if one_sided is not None:
            self.checks.append(one_sided)
            return
        if isinstance(left, Raised):
            return

        def truth(args: list[Argument]) -> Any:
            value = self._torch_gradients(args, positions, floating, weights, pairs, double=True)
            fits = isinstance(value, list) and len(value) == len(left)
            return value if fits and _is_double(value) else None

        names = [f"input {i}" for i in positions] + [f"{a} / {b}" for a, b, _, _ in pairs]
        right = [
            m.reshape(tuple(t.shape)) if m.size == t.numel() else m
            for t, m in zip(left, right, strict=True)
        ]
        exact = truth(self.args)
        bad: list[Check] = []
        worst = 0.0
        for i, (name, t, m) in enumerate(zip(names, left, right, strict=True)):
            rows = judge(
                f"{row}: {name}",
                m,
                t,
                None if exact is None else exact[i],
                lambda i=i: [value[i] for value in self._moved(self.args, truth)],  # type: ignore[misc]
                self.settings.limits,
                name=self._truth_name,
            )
            if all(rows):
                worst = max(worst, *(check.metrics.get("limits", 0.0) for check in rows))
            else:
                bad += [name_gradient_cause(check, t, m) for check in rows]
        self.checks += bad or [
            Check(
                row,
                "ok",
                f"{len(names)} agree ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})",
                metrics={"limits": worst},
            )
        ]

    def _weight(self, leaf: Any) -> Argument:
        """Fixed random weights for one output, rounded to its dtype as both sides will see them."""
        values = np.random.default_rng(self.settings.seed).normal(size=tuple(leaf.shape))
        return Argument.of(Argument(np.asarray(values), dtype(leaf)).torch())

    def _torch_gradients(
        self,
        args: list[Argument],
        positions: tuple[int, ...],
        floating: list[int],
        weights: list[Argument],
        pairs: _Pairs,
        *,
        double: bool = False,
    ) -> Any:
        import torch

        function = self._torch_function(double)
        inner = dict(function.named_parameters()) if is_module(function) else {}
        parameters = [inner[name] for name, _, _, _ in pairs if name in inner]
        tensors = [arg.torch(double=double) for arg in args]
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

        with torch.enable_grad(), unchanged(self._torch_nets):
            return attempt(gradients)

    def _ms_gradients(
        self,
        mode: str,
        positions: tuple[int, ...],
        pairs: _Pairs,
        where: tuple[Any, ...],
        weights: list[Argument],
    ) -> Any:
        import mindspore as ms

        summed = weighted(self.ms_fn, where, tuple(weight.mindspore() for weight in weights))
        parameters = [p for _, _, _, p in pairs]
        with unchanged(self._ms_nets), run_mode(mode):
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

    # Extremes

    def _extremes(self) -> None:
        agreed: list[str] = []
        floats = any(arg.is_float and arg.value.size for arg in self.args)
        known = extremes.extreme_arguments(self.args) if floats else iter(())
        if self.settings.isolated:
            known = chain(known, extremes.negative_index(self.args))
        for what, args in known:
            torch = self.call_torch(args).value
            if isinstance(torch, Raised) and not self.settings.isolated:
                continue  # what PyTorch refuses can end the process in a kernel of MindSpore
            ours = self.call_mindspore(args).value
            row = f"extreme: {what}"
            one_sided = exceptions(row, torch, ours)
            if one_sided is not None:
                rows = [one_sided]
            else:
                rows = self._judge(row, ours, torch, self.truth(args), args)
            if all(rows):
                agreed.append(what)
            elif what in ("NaN", "infinite"):
                self.checks.append(extremes.hidden(row, rows[0]))
            else:
                self.checks += self._named(rows, torch, ours, args)
        if agreed:
            self.checks.append(Check("extremes", "ok", f"alike on {', '.join(agreed)} inputs"))
        if floats:
            self._scan()

    def _is_elementwise(self, args: list[Argument]) -> bool:
        """Whether longer arguments are worth their time: a value of the result for each element."""
        value = self.call_torch(args).value
        longest = max(arg.value.size for arg in args if arg.is_float)
        return not isinstance(value, Raised) and size(value) == longest

    def _scan(self) -> None:
        """Many values from -12 to 12: errors in one stretch only, and values out of range."""
        args = extremes.scan_arguments(self.args, self._is_elementwise)
        torch = self.call_torch(args).value
        if isinstance(torch, Raised):
            return
        ours = self.call_mindspore(args).value
        if isinstance(ours, Raised):
            return
        truth = self.truth(args)
        row = f"scan from {-extremes.SCAN:g} to {extremes.SCAN:g}"
        rows = self._named(self._judge(row, ours, torch, truth, args), torch, ours, args)
        self.checks += [extremes.stretch(check, args, torch, ours) for check in rows]
        if truth is not None:
            self.checks += extremes.out_of_range(truth, ours)


_LAST_BIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}


def _is_double(value: Any) -> bool:
    floats = [leaf for leaf in leaves(value) if is_floating(leaf)]
    return bool(floats) and all(dtype(leaf) in ("float64", "complex128") for leaf in floats)


def _refuse_wrong_side(value: Any, name: str, wrong: str) -> None:
    for leaf in leaves(value):
        if kind(leaf) == wrong:
            raise TypeError(
                f"{name} returned a {wrong} tensor; each side computes with its own framework"
            )
        simple = leaf is None or isinstance(leaf, (bool, int, float, complex, Raised))
        if not simple and not hasattr(leaf, "dtype"):
            raise TypeError(
                f"{name} returned {type(leaf).__name__}, expected tensors or a structure of them"
            )

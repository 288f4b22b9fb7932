"""Training on both sides: gradients, one optimizer step after the other, and how far they may part.

PyTorch works on copies, MindSpore on the net itself, which the caller gives back as it was. What a
correct port may differ by is measured: PyTorch is run again with weights and inputs one ulp away,
and in double precision.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from msnb.isolate import pynative_executor
from msnb.parity import limits
from msnb.parity.arrays import compare, to_numpy
from msnb.parity.calls import Raised, attempt, cells, plain, run_mode, write
from msnb.parity.layers import FAR, agree, swing
from msnb.parity.settings import Mismatch
from msnb.report import Check, Report

_Array = np.ndarray[Any, Any]

RUNS = 3  # of PyTorch, each one ulp away


# Giving MindSpore's side back

_ENTRY = "__parse_method__"


@contextmanager
def restored(*things: Any) -> Iterator[None]:
    """Give Cells, optimizers among them, back as they were: values and training flags.

    Values are written in place. ``set_data`` would give a Parameter new memory, and what is already
    compiled keeps using the old: ``mindspore.experimental.optim.AdamW`` compiles its rule, and then
    trains memory that nobody reads, without a word. Once called outside a compiled step, that
    optimizer also keeps a note of its entry, with which it fails inside one: the note goes. Both
    measured on MindSpore 2.10, CPU.
    """
    held = {id(p): p for thing in things for _, p in thing.parameters_and_names()}
    values = {key: np.array(to_numpy(parameter)[0]) for key, parameter in held.items()}
    every = [cell for thing in things for cell in cells(thing)]
    flags = [(cell, bool(cell.training), cell.phase) for cell in every]
    entries = [cell.__dict__.get(_ENTRY) for cell in every]
    try:
        yield
    finally:
        for cell, entry in zip(every, entries, strict=True):
            if entry is None and _ENTRY in cell.__dict__:
                delattr(cell, _ENTRY)
        with run_mode("pynative"):
            for key, parameter in held.items():
                write(parameter, values[key])
        for cell, flag, phase in flags:
            if bool(cell.training) != flag:
                cell.add_flags(training=flag)
                cell.phase = phase


def drop_leftovers() -> None:
    """Drop what earlier calls left in MindSpore's PyNative executor.

    After some thirty nets trained in one process ``tensor[0]`` began to raise "Only support
    integers ... but got 0", on any tensor, until the executor's state was cleared (MindSpore 2.10,
    CPU; it clears it itself when a compilation fails).
    """
    executor = pynative_executor()
    executor.sync()
    executor.clear_res()


# PyTorch


@dataclass
class Trajectory:
    """A few steps: losses, first gradients, values before, after the first and the last step."""

    losses: list[_Array] = field(default_factory=list)
    grads: dict[str, _Array | None] = field(default_factory=dict)
    first: dict[str, _Array] = field(default_factory=dict)
    last: dict[str, _Array] = field(default_factory=dict)
    start: dict[str, _Array] = field(default_factory=dict)


def copied(*things: Any) -> tuple[Any, ...]:
    """Copies that hang together: the optimizer's copy moves the net's copy."""
    return tuple(copy.deepcopy(list(things)))


def nudge(net: Any, seed: int) -> None:
    """Move each weight of a torch net to the next number above or below."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.is_floating_point():
                parameter.copy_(nudged(parameter, generator))


def nudged(tensor: Any, generator: Any) -> Any:
    import torch

    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        return tensor
    up = torch.rand(tensor.shape, generator=generator) < 0.5
    far = torch.where(up, torch.inf, -torch.inf).to(tensor.dtype)
    return torch.where(tensor == 0, tensor, torch.nextafter(tensor, far))


def doubled(value: Any) -> Any:
    import torch

    if isinstance(value, (tuple, list)):
        return type(value)(doubled(item) for item in value)
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value


def state_of(net: Any) -> dict[str, _Array]:
    return {
        name: np.array(to_numpy(value)[0])
        for name, value in net.state_dict().items()
        if hasattr(value, "dtype")
    }


def torch_train(
    net: Any,
    loss: Any,
    optimizer: Any,
    inputs: Sequence[Any],
    label: Any,
    steps: int,
    stir: dict[str, float] | None = None,
) -> Trajectory:
    """Train a torch net, or go backward once; ``stir`` adds noise to gradients."""
    import torch

    done = Trajectory(start=state_of(net))
    generator = torch.Generator().manual_seed(1)
    with torch.enable_grad():
        for step in range(steps if optimizer is not None else 1):
            net.zero_grad(set_to_none=True)
            value = loss(net(*inputs), label)
            value.backward()
            done.losses.append(np.array(to_numpy(value)[0]))
            for name, parameter in net.named_parameters():
                if parameter.grad is not None and stir and name in stir:
                    noise = torch.rand(parameter.shape, generator=generator) * 2 - 1
                    parameter.grad += (stir[name] * noise).to(parameter.dtype)
            if step == 0:
                done.grads = {
                    name: None if p.grad is None else np.array(to_numpy(p.grad)[0])
                    for name, p in net.named_parameters()
                    if p.requires_grad
                }
            if optimizer is not None:
                optimizer.step()
                if step == 0:
                    done.first = state_of(net)
    done.last = state_of(net)
    return done


# MindSpore


def differentiated(net: Any, loss: Any, weights: Any) -> Any:
    """A function of inputs and label: the loss and its gradients for ``weights``."""
    import mindspore as ms

    def forward(*args):  # type: ignore[no-untyped-def]
        return loss(net(*args[:-1]), args[-1])

    return ms.value_and_grad(forward, None, weights)


def stepping(gradient: Any, optimizer: Any) -> Any:
    """A training step as users write it: it returns the loss and the gradients."""
    if optimizer is None:
        return gradient

    def step(*args):  # type: ignore[no-untyped-def]
        value, grads = gradient(*args)
        optimizer(grads)
        return value, grads

    return step


def ms_state(net: Any) -> dict[str, _Array]:
    return {name: np.array(to_numpy(value)[0]) for name, value in net.parameters_and_names()}


def ms_train(
    net: Any,
    loss: Any,
    optimizer: Any,
    weights: Any,
    names: Sequence[str],
    args: Sequence[Any],
    steps: int,
    wrap: Callable[[Any], Any] | None = None,
) -> Trajectory | Raised:
    """Train a Cell, in the mode that is set; ``wrap`` compiles the step."""
    done = Trajectory(start=ms_state(net))
    step = stepping(differentiated(net, loss, weights), optimizer)
    if wrap is not None:
        step = wrap(step)
    for number in range(steps if optimizer is not None else 1):
        result = attempt(step, *args)
        if isinstance(result, Raised):
            return result
        value, grads = result
        done.losses.append(np.array(to_numpy(value)[0]))
        if number == 0:
            grads = grads if isinstance(grads, (tuple, list)) else (grads,)
            done.grads = {
                name: np.array(to_numpy(grad)[0]) for name, grad in zip(names, grads, strict=True)
            }
            if optimizer is not None:
                done.first = ms_state(net)
    done.last = ms_state(net)
    return done


def compiled(step: Any) -> Any:
    import mindspore as ms

    return ms.jit(plain(step))


# The same gradients to both


def drawn(shapes: dict[str, tuple[int, ...]], step: int) -> dict[str, _Array]:
    """Gradients of every size from 1e-9 to 1, some zero: each rule of an optimizer shows."""
    generator = np.random.default_rng(1000 + step)
    found = {}
    for name, shape in shapes.items():
        size = 10.0 ** generator.uniform(-9, 0, shape)
        sign = generator.choice([-1.0, 1.0], shape)
        keep = generator.uniform(size=shape) > 0.1
        found[name] = np.asarray(size * sign * keep, dtype=np.float32)
    return found


def torch_fed(net: Any, optimizer: Any, grads: Sequence[dict[str, _Array]]) -> dict[str, _Array]:
    """How far each parameter of a torch net moves when its optimizer is fed these gradients."""
    import torch

    parameters = dict(net.named_parameters())
    before = {name: p.detach().double().numpy().copy() for name, p in parameters.items()}
    for each in grads:
        for name, grad in each.items():
            parameter = parameters[name]
            parameter.grad = torch.from_numpy(grad.copy()).to(parameter.dtype)
        optimizer.step()
    return {n: p.detach().double().numpy() - before[n] for n, p in parameters.items()}


def ms_fed(
    optimizer: Any, order: Sequence[str], grads: Sequence[dict[str, _Array]]
) -> dict[str, _Array] | Raised:
    """The same for MindSpore; ``grads`` in MindSpore's layout, ``order`` that of the optimizer."""
    import mindspore as ms

    parameters = list(optimizer.parameters)
    before = [np.array(to_numpy(p)[0]).astype(np.float64) for p in parameters]
    for each in grads:
        given = tuple(
            ms.Tensor(each[name].astype(old.dtype))
            for name, old in zip(order, map(_array, parameters), strict=True)
        )
        result = attempt(optimizer, given)
        if isinstance(result, Raised):
            return result
    return {
        name: _array(p).astype(np.float64) - old
        for name, p, old in zip(order, parameters, before, strict=True)
    }


def _array(value: Any) -> _Array:
    array: _Array = to_numpy(value)[0]
    return array


def moved_alike(
    ours: _Array, theirs: _Array, value: _Array, noise: _Array | None, steps: int
) -> Report:
    """Compare how far a parameter moved; it is read back from values rounded to their own ulp."""
    eps = limits.EPS["float32"] if value.dtype != np.float64 else limits.EPS["float64"]
    unit = float(limits.limit("float32", 1))
    scale = np.maximum(limits.magnitude(ours, theirs), 2 * steps * eps * np.abs(value) / unit)
    if noise is not None:
        scale = np.maximum(scale, FAR * noise / unit)
    return compare(
        ours.astype(np.float32),
        theirs.astype(np.float32),
        reduction=1,
        scale=scale,
        names=("MindSpore", "PyTorch"),
    )


# Gradients


@dataclass
class Gradient:
    """One parameter's gradients: PyTorch's, MindSpore's in its layout, the truth, and the noise."""

    torch: _Array
    mindspore: _Array
    truth: _Array | None
    moved: list[_Array]

    @property
    def vanishes(self) -> bool:
        """Whether the true gradient is zero and what is seen is rounding.

        As for a bias in front of BatchNorm or softmax: double precision then gives next to nothing
        beside what single precision gives, or PyTorch's one ulp away is another one altogether.
        """
        seen = max(_rms(self.torch), *(_rms(value) for value in self.moved), 0.0)
        if seen == 0.0 or self.truth is None:
            return seen == 0.0 and (self.truth is None or _rms(self.truth) == 0.0)
        return _rms(self.truth) < 1e-3 * seen

    def judge(self, around: float) -> Report:
        """``around`` is the size of the net's other gradients, for one that is rounding alone."""
        others = [*self.moved, *([] if self.truth is None else [self.truth])]
        noise = swing(self.torch, others)
        floor = float(limits.limit("float32", 64)) * around if self.vanishes else 0.0
        return agree(self.mindspore, self.torch, noise, floor=floor, times=FAR)


def _rms(values: _Array) -> float:
    with np.errstate(all="ignore"):
        return float(np.sqrt(np.mean(np.square(values.astype(np.float64))))) if values.size else 0.0


def swapped(name: str, gradients: dict[str, Gradient]) -> str:
    """The parameter of the same shape whose gradient MindSpore returned for this one, if any."""
    mine = gradients[name]
    for other, theirs in gradients.items():
        if other == name or theirs.torch.shape != mine.torch.shape or not np.any(theirs.torch):
            continue
        if agree(mine.mindspore, theirs.torch, swing(theirs.torch, theirs.moved), times=FAR).ok:
            return other
    return ""


# Optimizers


_FORMULAS = {
    ("Adam", "nn.Adam"): (
        "nn.Adam adds eps before the bias correction, torch.optim.Adam after it",
        "ms.experimental.optim.AdamW(ms_net.trainable_params(), lr={lr:g}, weight_decay=0)",
    ),
    ("Adam", "experimental.Adam"): (
        "ms.experimental.optim.Adam adds eps before the bias correction, torch.optim.Adam after it",
        "ms.experimental.optim.AdamW(ms_net.trainable_params(), lr={lr:g}, weight_decay=0)",
    ),
    ("AdamW", "nn.AdamWeightDecay"): (
        "nn.AdamWeightDecay has no bias correction",
        "ms.experimental.optim.AdamW(ms_net.trainable_params(), lr={lr:g}, "
        "weight_decay={weight_decay:g})",
    ),
    ("AdamW", "nn.Adam"): (
        "nn.Adam adds weight decay to the gradient (L2), AdamW takes it off the weight",
        "ms.experimental.optim.AdamW(ms_net.trainable_params(), lr={lr:g}, "
        "weight_decay={weight_decay:g})",
    ),
    ("RMSprop", "nn.RMSProp"): (
        "nn.RMSProp starts its mean square at 1, torch.optim.RMSprop at 0, and adds eps inside the "
        "square root",
        "ms.experimental.optim.RMSprop(ms_net.trainable_params(), lr={lr:g}, alpha={alpha:g})",
    ),
    ("Adagrad", "nn.Adagrad"): (
        "nn.Adagrad starts its accumulator at 0.1, torch.optim.Adagrad at 0",
        "ms.experimental.optim.Adagrad(ms_net.trainable_params(), lr={lr:g})",
    ),
}


def optimizer_name(optimizer: Any) -> str:
    """``nn.Adam``, ``experimental.AdamW``, ``mint.SGD``: whose optimizer this is."""
    for base in type(optimizer).__mro__:
        module = base.__module__
        if module.startswith("mindspore.experimental"):
            return f"experimental.{base.__name__}"
        if module.startswith("mindspore.mint"):
            return f"mint.{base.__name__}"
        if module.startswith("mindspore.nn.optim"):
            return f"nn.{base.__name__}"
        if module.startswith("torch.optim"):
            return base.__name__
    return type(optimizer).__name__


def formula(torch_optimizer: Any, ms_optimizer: Any) -> tuple[str, str] | None:
    """A known difference of two optimizers' formulas, and what to type instead."""
    found = _FORMULAS.get((optimizer_name(torch_optimizer), optimizer_name(ms_optimizer)))
    if found is None and optimizer_name(ms_optimizer) in ("mint.SGD", "mint.Adam"):
        name = optimizer_name(ms_optimizer)
        twin = {"mint.SGD": "SGD", "mint.Adam": "AdamW"}[name]
        decay = ", weight_decay=0" if twin == "AdamW" else ""
        found = (
            f"{name.replace('mint.', 'mint.optim.')} does not change the weights on CPU",
            f"ms.experimental.optim.{twin}(ms_net.trainable_params(), lr={{lr:g}}{decay})",
        )
    if found is None:
        return None
    values = dict(torch_optimizer.param_groups[0])
    values = {key: float(v) for key, v in values.items() if isinstance(v, (int, float))}
    return found[0], found[1].format_map({"alpha": 0.99, "weight_decay": 0.0, "lr": 0.0, **values})


def torch_options(optimizer: Any, names: dict[int, str]) -> dict[str, dict[str, Any]]:
    """Learning rate, weight decay and the rest for each parameter of a torch optimizer, by name."""
    found = {}
    for group in optimizer.param_groups:
        options = {key: _number(value) for key, value in group.items() if key != "params"}
        if "betas" in group:
            options["beta1"], options["beta2"] = (_number(beta) for beta in group["betas"])
        for parameter in group["params"]:
            if id(parameter) in names:
                found[names[id(parameter)]] = options
    return found


_KEYS = ("momentum", "dampening", "nesterov", "beta1", "beta2", "eps", "amsgrad", "alpha")
_MS_KEYS = {
    "nesterov": ("nesterov", "use_nesterov"),
    "amsgrad": ("use_amsgrad",),
    "alpha": ("decay",),
    "eps": ("eps", "epsilon"),
}


def ms_options(optimizer: Any) -> list[dict[str, Any]]:
    """The same for each parameter of a MindSpore optimizer, in its order."""
    if hasattr(optimizer, "param_groups"):
        found = []
        for group in optimizer.param_groups:
            options = {key: _number(value) for key, value in group.items() if key != "params"}
            if "betas" in group:
                options["beta1"], options["beta2"] = (_number(beta) for beta in group["betas"])
            found += [options] * len(group["params"])
        return found
    shared = {}
    for key in _KEYS:
        for name in _MS_KEYS.get(key, (key,)):
            value = _number(getattr(optimizer, name, None))
            if value is not None:
                shared[key] = value
                break
    count = len(optimizer.parameters)
    rates = _each(getattr(optimizer, "learning_rate", None), count)
    decays = _each(getattr(optimizer, "weight_decay", None), count)
    flags = _each(getattr(optimizer, "decay_flags", True), count)
    return [
        {
            **shared,
            **({} if rate is None else {"lr": rate}),
            **({} if decay is None else {"weight_decay": decay if flag else 0.0}),
        }
        for rate, decay, flag in zip(rates, decays, flags, strict=True)
    ]


def _each(value: Any, count: int) -> list[Any]:
    if isinstance(value, (tuple, list)):
        numbers = [item if isinstance(item, bool) else _number(item) for item in value]
        return numbers if len(numbers) == count else [None] * count
    return [value if isinstance(value, bool) else _number(value)] * count


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return float(value)
    if hasattr(value, "dtype") and getattr(value, "size", 0) == 1:
        return float(np.asarray(to_numpy(value)[0]).reshape(()))
    if hasattr(value, "numel") and value.numel() == 1:
        return float(value)
    return None


def option_mismatches(
    torch: dict[str, dict[str, Any]], mindspore: dict[str, dict[str, Any]]
) -> dict[str, tuple[Mismatch, list[str]]]:
    """Options that differ, each with the parameters for which they do (PyTorch's names)."""
    found: dict[str, tuple[Mismatch, list[str]]] = {}
    for key in ("lr", "weight_decay", *_KEYS):
        for name in torch:
            here, there = torch[name].get(key), mindspore.get(name, {}).get(key)
            if here is None or there is None:
                continue
            if abs(here - there) <= 1e-6 * max(abs(here), abs(there)):
                continue
            label = f"{key} {here!r} {there!r}"
            mismatch = Mismatch(key, here, there, f"{_MS_WORD.get(key, key)}={here:g}")
            found.setdefault(label, (mismatch, []))[1].append(name)
    return found


_MS_WORD = {"lr": "learning_rate"}


def vanished(gradients: dict[str, Gradient]) -> dict[str, float]:
    """Parameters whose gradient is rounding alone, with the size of that rounding."""
    return {
        name: max(_rms(g.torch), _rms(g.mindspore), *(_rms(m) for m in g.moved))
        for name, g in gradients.items()
        if g.vanishes
    }


def statistics(values: dict[str, _Array]) -> tuple[int, str, str]:
    """How many values are not finite, where first, and a line about their size."""
    bad, where = 0, ""
    low, high = np.inf, 0.0
    for name, value in values.items():
        if value.dtype.kind not in "fc" or not value.size:
            continue
        count = int(np.count_nonzero(~np.isfinite(value)))
        if count and not where:
            where = name
        bad += count
        size = _rms(value)
        if size > 0 and np.isfinite(size):
            low, high = min(low, size), max(high, size)
    return bad, where, f"rms of a parameter {low:.2g} to {high:.2g}" if high else ""


def as_check(row: str, report: Report, *, remedy: str = "") -> Check:
    """The one row of a comparison that is not ok."""
    bad = next(c for c in report if c.status in ("failed", "error"))
    text = bad.summary if bad.id == "values" else f"{bad.id}: {bad.summary}"
    return Check(
        row,
        "failed",
        text,
        found=bad.found,
        remedy=remedy or bad.remedy,
        metrics=bad.metrics,
    )

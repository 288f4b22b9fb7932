"""A ported network against its original, from weights to training steps, in every mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from msnb.parity import layers, steps
from msnb.parity.arrays import to_numpy
from msnb.parity.calls import (
    Argument,
    Raised,
    attempt,
    cells,
    in_mode,
    is_cell,
    is_module,
    is_statistic,
    kind,
    places,
    run_mode,
    tidy,
    write,
)
from msnb.parity.layers import Noise, Pair, Record
from msnb.parity.pairing import Pairing, pair
from msnb.parity.settings import Mismatch, count, differing
from msnb.report import Check, Report

_Array = np.ndarray[Any, Any]

MODES = ("pynative", "jit", "graph")
_NAMED = 5  # layers or parameters that a row names
_FIRST = "first what the forward rows name"


def check_migration(
    torch_net: Any,
    ms_net: Any,
    batch: Any,
    *,
    loss: tuple[Any, Any] | None = None,
    optimizer: tuple[Any, Any] | None = None,
    steps: int = 3,
    modes: Sequence[str] = MODES,
    names: Mapping[str, str] | None = None,
) -> Report:
    """Whether a net ported to MindSpore does what the original does, from weights to training.

    ``batch`` is one array or a tuple of the net's arguments: NumPy arrays or tensors of either
    framework, of any shape; with a loss the label comes last. ``loss=(torch_loss, ms_loss)`` are
    called as ``loss(output, label)``; ``optimizer=(torch_optimizer, ms_optimizer)`` hold the
    parameters of these two nets. Integers go as int64 to PyTorch and as int32 to MindSpore.
    ``names`` maps names of weights as for ``copy_weights``.

    The rows, each ok or with what differs, by how much and what to type:

    - ``weights``: paired and equal. Where they differ, the rest is run with PyTorch's.
    - ``training``: flags of the layers, and which parameters are trained.
    - ``settings``: hyper-parameters of matching layers.
    - ``layers``, ``forward (eval)``, ``forward (train)``: every layer's output on the same input,
      aligned by order of execution; the first that drifts is named, and fed PyTorch's input to
      tell the layer from what lies before it. Dropout is off meanwhile.
    - ``running statistics`` after a call in training mode.
    - ``loss`` of PyTorch's output, ``gradients`` of each parameter.
    - ``optimizer``, ``same gradients``: its options, and both optimizers fed the same gradients.
    - ``steps``: both nets trained for a few steps; losses and how far each parameter moved.
    - ``finite``: NaN and Inf in any of it, and the size of the weights.
    - ``jit``, ``graph``: forward, gradients and a step again in the other ``modes``.

    What a right port may differ by is measured: PyTorch against itself with weights and inputs one
    ulp off, and against double precision. A gradient that is rounding alone (a bias in front of
    BatchNorm or softmax) is recognised. Nets, optimizers, the mode and random states come back as
    they were. The loss must not reach into the net itself, since PyTorch runs on copies.

    Raises ``TypeError`` and ``ValueError`` for what cannot be checked: frameworks swapped, no net,
    a batch that PyTorch's net does not take, a loss without a label, an optimizer of another net.

    >>> import torch
    >>> from mindspore import nn
    >>> torch_net, ms_net = torch.nn.LayerNorm(4).eval(), nn.LayerNorm((4,))
    >>> x = np.linspace(-1e-3, 1e-3, 8, dtype="float32").reshape(2, 4)
    >>> report = check_migration(torch_net, ms_net, x, modes=["pynative"])
    >>> print(report["settings: the net"].summary)
    the net (LayerNorm): eps: PyTorch 1e-05, MindSpore 1e-07
    >>> report["settings: the net"].remedy
    'epsilon=1e-05'
    """
    _check_nets(torch_net, ms_net)
    losses = _pair_of("loss", loss, "torch_loss, ms_loss")
    optimizers = _pair_of("optimizer", optimizer, "torch_optimizer, ms_optimizer")
    _check_losses(losses)
    _check_optimizers(optimizers, torch_net, ms_net)
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps={steps!r}: how many training steps, an integer of 1 or more")
    arguments = _arguments(batch, torch_net, with_label=losses is not None)
    migration = _Migration(
        torch_net, ms_net, arguments, losses, optimizers, steps, _modes(modes), names
    )
    title = f"check_migration {type(torch_net).__name__} / {type(ms_net).__name__}"
    return Report(title, migration.run())


# Bad input


def _check_nets(torch_net: Any, ms_net: Any) -> None:
    order = "the order is check_migration(torch_net, ms_net, batch)"
    for name, net, right, is_net in (
        ("torch_net", torch_net, "torch.nn.Module", is_module),
        ("ms_net", ms_net, "mindspore.nn.Cell", is_cell),
    ):
        if isinstance(net, type):
            raise TypeError(
                f"{name} is the class {net.__name__}, not a net: make one, {net.__name__}(...)"
            )
        if is_net(net):
            continue
        other = is_cell(net) if right.startswith("torch") else is_module(net)
        if other:
            whose = "MindSpore" if right.startswith("torch") else "PyTorch"
            raise TypeError(f"{name} is {type(net).__name__} of {whose}; {order}")
        raise TypeError(f"{name} is a {right}, not {type(net).__name__}; {order}")


def _pair_of(name: str, value: Any, words: str) -> tuple[Any, Any] | None:
    if value is None:
        return None
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        got = f"{len(value)} things" if isinstance(value, (tuple, list)) else type(value).__name__
        raise TypeError(f"{name} is a pair, {name}=({words}), not {got}")
    return value[0], value[1]


def _check_losses(losses: tuple[Any, Any] | None) -> None:
    if losses is None:
        return
    for side, (loss, wrong) in zip(
        ("torch_loss", "ms_loss"), zip(losses, ("mindspore", "torch"), strict=True), strict=True
    ):
        if isinstance(loss, type):
            raise TypeError(f"{side} is the class {loss.__name__}: make one, {loss.__name__}()")
        if not callable(loss):
            raise TypeError(
                f"{side} is called as loss(output, label), and {type(loss).__name__} cannot be "
                "called"
            )
        if kind(loss) == wrong:
            other = "MindSpore" if wrong == "mindspore" else "PyTorch"
            raise TypeError(f"{side} belongs to {other}; the order is loss=(torch_loss, ms_loss)")


def _check_optimizers(optimizers: tuple[Any, Any] | None, torch_net: Any, ms_net: Any) -> None:
    if optimizers is None:
        return
    torch_optimizer, ms_optimizer = optimizers
    order = "the order is optimizer=(torch_optimizer, ms_optimizer)"
    if kind(torch_optimizer) == "mindspore" or kind(ms_optimizer) == "torch":
        raise TypeError(f"the optimizers are swapped; {order}")
    if not hasattr(torch_optimizer, "param_groups") or not hasattr(torch_optimizer, "zero_grad"):
        raise TypeError(
            f"torch_optimizer is a torch.optim.Optimizer, not {_what(torch_optimizer)}; {order}"
        )
    if not is_cell(ms_optimizer) or not hasattr(ms_optimizer, "parameters"):
        raise TypeError(
            f"ms_optimizer is an optimizer of mindspore.nn or mindspore.experimental.optim, not "
            f"{_what(ms_optimizer)}; {order}"
        )
    mine = {id(parameter) for parameter in torch_net.parameters()}
    held = [p for group in torch_optimizer.param_groups for p in group["params"]]
    if any(id(parameter) not in mine for parameter in held):
        raise ValueError(
            "torch_optimizer holds parameters of another net: make it from torch_net.parameters()"
        )
    mine = {id(parameter) for _, parameter in ms_net.parameters_and_names()}
    strange = [p.name for p in ms_optimizer.parameters if id(p) not in mine]
    if strange:
        raise ValueError(
            f"ms_optimizer holds parameters of another net, {strange[0]} first: make it from "
            "ms_net.trainable_params()"
        )


def _what(thing: Any) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else type(thing).__name__


def _modes(modes: Any) -> tuple[str, ...]:
    if isinstance(modes, str) or not isinstance(modes, Sequence):
        raise TypeError(f"modes is a list of modes, not {modes!r}: write modes=[{modes!r}]")
    for mode in modes:
        if mode not in MODES:
            raise ValueError(f"modes are among {', '.join(MODES)}, not {mode!r}")
    return tuple(dict.fromkeys(modes))


def _arguments(batch: Any, torch_net: Any, *, with_label: bool) -> list[Argument]:
    if isinstance(batch, Mapping):
        raise TypeError(
            "batch is a tuple of arrays in the order of the net's arguments, not a dict of "
            f"{', '.join(map(repr, batch))}: write (x, y)"
        )
    values = batch if isinstance(batch, (tuple, list)) else (batch,)
    if not values:
        raise ValueError("batch is empty: give the net's arguments, and the label last")
    if with_label and len(values) < 2:
        raise ValueError(
            "a loss needs a label: the batch is (x, y), the label last; here it is x alone"
        )
    arguments = []
    for index, value in enumerate(values):
        where = f"batch[{index}]"
        if isinstance(value, (str, bytes)) or is_module(value) or is_cell(value):
            raise TypeError(f"{where} is an array or a tensor, not {type(value).__name__}")
        argument = Argument.of(np.asarray(value) if isinstance(value, list) else value)
        if argument.dtype == "float64" and _precision(torch_net) == "float32":
            argument = Argument(argument.value.astype(np.float32), "float32")
        arguments.append(argument)
    return arguments


def _precision(torch_net: Any) -> str:
    for parameter in torch_net.parameters():
        if parameter.is_floating_point():
            return str(parameter.dtype).removeprefix("torch.")
    return "float32"


def _to_torch(argument: Argument) -> Any:
    tensor = argument.torch()
    return tensor.long() if argument.dtype.startswith(("int", "uint")) else tensor


def _to_mindspore(argument: Argument, dtype: str = "int32") -> Any:
    if argument.dtype.startswith(("int", "uint")):
        return Argument(argument.value.astype(dtype), dtype).mindspore()
    return argument.mindspore()


# The check


class _Migration:
    def __init__(
        self,
        torch_net: Any,
        ms_net: Any,
        arguments: list[Argument],
        losses: tuple[Any, Any] | None,
        optimizers: tuple[Any, Any] | None,
        count: int,
        modes: tuple[str, ...],
        names: Mapping[str, str] | None,
        *,
        heal: bool = True,
    ) -> None:
        self.torch_net, self.ms_net = torch_net, ms_net
        nothing: tuple[Any, Any] = (None, None)
        self.torch_loss, self.ms_loss = losses or nothing
        self.torch_optimizer, self.ms_optimizer = optimizers or nothing
        self.count, self.modes, self.heal = count, modes, heal
        self.names = dict(names or {})
        split = len(arguments) - (losses is not None)
        self.torch_inputs = [_to_torch(argument) for argument in arguments[:split]]
        self.ms_inputs = [_to_mindspore(argument) for argument in arguments[:split]]
        self.torch_label = _to_torch(arguments[-1]) if losses else None
        self.ms_label = _to_mindspore(arguments[-1]) if losses else None
        self.arguments = arguments
        self.checks: list[Check] = []
        self.shake: dict[str, float] = {}
        self.mismatches: dict[str, list[Mismatch]] = {}
        self.seen: dict[str, _Array] = {}  # values that the last row looks through
        self.theirs: dict[str, _Array] = {}
        self.wrong_gradients = False
        self.nudged: dict[int, list[Any]] = {}
        self.drifted = False

    def add(self, id_: str, status: Any, summary: str, **more: Any) -> None:
        self.checks.append(Check(id_, status, summary, **more))

    def run(self) -> list[Check]:
        import torch

        with (
            torch.random.fork_rng(devices=[]),
            run_mode("pynative"),
            tidy(),
            steps.restored(*self.kept()),
        ):
            steps.drop_leftovers()
            self.weights()
            self.training()
            base = self.forward("eval")
            self.forward("train")
            self.loss(base)
            self.train()
            self.finite()
            for mode in self.modes:
                if mode != "pynative":
                    self.other_mode(mode)
        return self.checks

    # Weights

    def weights(self) -> None:
        self.pairing: Pairing = pair(self.torch_net, self.ms_net, names=self.names)
        copy_ = "msnb.copy_weights(torch_net, ms_net)"
        for problem in self.pairing.problems[:_NAMED]:
            self.checks.append(
                Check(
                    f"weights: {problem.id}",
                    "failed",
                    problem.summary,
                    found=problem.found,
                    expected=problem.expected,
                    remedy=problem.remedy,
                )
            )
        unpaired = self.pairing.unmatched_torch + self.pairing.unmatched_mindspore
        different, worst, where = 0, 0.0, ""
        self.matched = {}
        self.convert = {}
        for match in self.pairing.matched:
            self.matched[match.torch_name] = match.ms_name
            self.convert[match.torch_name] = match.convert
            value = match.convert(np.asarray(to_numpy(match.source)[0]))
            mine = to_numpy(match.target)[0]
            if value.shape != mine.shape:
                continue
            if not np.array_equal(value, mine, equal_nan=True):
                different += 1
                gap = _relative(mine, value)
                if gap >= worst:
                    worst, where = gap, match.torch_name
                if self.heal and hasattr(match.target, "set_data"):
                    write(match.target, value.astype(mine.dtype))
        self.owners = {
            here.rpartition(".")[0]: there.rpartition(".")[0]
            for here, there in self.matched.items()
        }
        total = len(self.pairing.matched)
        if unpaired:
            shown = ", ".join(unpaired[:_NAMED])
            self.add(
                "weights",
                "failed",
                f"{len(unpaired)} without a partner: {shown}",
                remedy=copy_ + ' shows them; names={"torch.layer": "ms.layer"} says which',
            )
        elif different:
            self.add(
                "weights",
                "failed",
                f"{different} of {total} differ, {where} most, by {worst:.2g} of its size; the "
                "rows below are run with PyTorch's weights",
                remedy=copy_,
                metrics={"different": different, "worst": worst},
            )
        elif not self.pairing.problems:
            self.add("weights", "ok", f"{total} parameters and buffers paired and equal")

    # Flags

    def training(self) -> None:
        ours = dict(self.ms_net.cells_and_names())
        wrong = []
        for here, module in self.torch_net.named_modules():
            there = self.owners.get(here, None if here else "")
            cell = ours.get(there) if there is not None else None
            if cell is not None and bool(cell.training) != bool(module.training):
                wrong.append((here or "the net", bool(module.training)))
        frozen = [
            match.torch_name
            for match in self.pairing.matched
            if match.trainable[0] is not None
            and hasattr(match.target, "requires_grad")
            and not is_statistic(match.ms_name)
            and match.trainable[0] != match.trainable[1]
        ]
        if wrong:
            whole = any(name == "the net" for name, _ in wrong)
            flag = wrong[0][1]
            remedy = f"ms_net.set_train({flag})"
            if not whole:
                remedy = f"ms_net.{wrong[0][0]}.set_train({flag})"
            modes = ("training", "evaluation")[:: 1 if flag else -1]
            self.add(
                "training",
                "failed",
                f"PyTorch is in {modes[0]}, MindSpore in {modes[1]} mode: "
                + ", ".join(name for name, _ in wrong[:_NAMED])
                + (" (a Cell starts in evaluation, a Module in training mode)" if whole else ""),
                remedy=remedy,
            )
        if frozen:
            self.add(
                "trained parameters",
                "failed",
                f"trained on one side only: {', '.join(frozen[:_NAMED])}",
                remedy="set requires_grad alike on both sides",
            )
        if not wrong and not frozen:
            self.add("training", "ok", "training flags and trained parameters alike")

    # Forward

    def torch_copy(self, mode: str, *, seed: int | None = None, double: bool = False) -> Any:
        (net,) = steps.copied(self.torch_net)
        if mode == "eval" or not self.torch_net.training:
            net.train(mode == "train")
        if seed is not None:
            self.nudge(net, seed)
        return net.double() if double else net

    def nudge(self, net: Any, seed: int) -> None:
        """Weights one ulp off, made once for each seed."""
        import torch

        if seed not in self.nudged:
            steps.nudge(net, seed)
            self.nudged[seed] = [parameter.detach().clone() for parameter in net.parameters()]
            return
        with torch.no_grad():
            for parameter, value in zip(net.parameters(), self.nudged[seed], strict=True):
                parameter.copy_(value)

    @contextmanager
    def ms_mode(self, mode: str) -> Iterator[None]:
        flags = [(cell, bool(cell.training), cell.phase) for cell in cells(self.ms_net)]
        if mode == "eval" or not self.ms_net.training:
            self.ms_net.set_train(mode == "train")
        try:
            with layers.without_dropout(self.ms_net):
                yield
        finally:
            for cell, flag, phase in flags:
                if bool(cell.training) != flag:
                    cell.add_flags(training=flag)
                    cell.phase = phase

    def moved_inputs(self, seed: int) -> list[Any]:
        import torch

        generator = torch.Generator().manual_seed(1000 + seed)
        return [steps.nudged(tensor, generator) for tensor in self.torch_inputs]

    def noise(self, mode: str, base: Record) -> Noise:
        """PyTorch beside itself, one ulp off and in double precision."""
        runs = []
        self.states = []
        for seed in range(steps.RUNS):
            net = self.torch_copy(mode, seed=seed)
            layers.without_torch_dropout(net)
            record = layers.record_torch(net, self.moved_inputs(seed), self.shake, keep=False)
            runs.append(record)
            self.states.append(steps.state_of(net))
        net = self.torch_copy(mode, double=True)
        layers.without_torch_dropout(net)
        runs.append(layers.record_torch(net, steps.doubled(self.torch_inputs), keep=False))
        return Noise(
            [_outputs(run) for run in runs if run.raised is None],
            _outputs(base),
        )

    def forward(self, mode: str) -> Record | None:
        row = f"forward ({mode})"
        net = self.torch_copy(mode)
        layers.without_torch_dropout(net)
        theirs = layers.record_torch(net, self.torch_inputs)
        if theirs.raised is not None:
            if mode == "eval":
                shapes = ", ".join(str(tuple(a.value.shape)) for a in self.arguments)
                raise ValueError(
                    f"torch_net does not take this batch: {theirs.raised}; the arrays have the "
                    f"shapes {shapes}" + ("; the last is the label" if self.torch_loss else "")
                )
            self.add(row, "error", f"PyTorch raises: {theirs.raised}")
            return None
        self.random = self.is_random(theirs, mode)
        with steps.restored(self.ms_net):
            with self.ms_mode(mode):
                ours = layers.record_mindspore(self.ms_net, self.ms_inputs)
            alignment = layers.align(theirs, ours, self.torch_net, self.ms_net, self.owners)
            if mode == "eval":
                self.settings(alignment)
            if ours.raised is not None:
                self.raises(row, ours)
                return theirs
            if self.random:
                self.add(
                    row,
                    "skipped",
                    "PyTorch's net is random beyond its Dropout layers (a functional dropout, "
                    "noise drawn inside): pass the noise in as an argument to compare it",
                )
                return theirs
            after = steps.ms_state(self.ms_net)
            with self.ms_mode(mode):
                self.judge_forward(row, mode, theirs, alignment)
            if mode == "train":
                self.running(net, after)
        return theirs

    def is_random(self, record: Record, mode: str) -> bool:
        net = self.torch_copy(mode)
        layers.without_torch_dropout(net)
        again = layers.record_torch(net, self.torch_inputs, keep=False)
        first, second = _outputs(record), _outputs(again)
        return any(
            not np.allclose(a, b, rtol=1e-3, atol=1e-6, equal_nan=True)
            for name in first
            for a, b in zip(first[name], second.get(name, []), strict=False)
        )

    def raises(self, row: str, record: Record) -> None:
        self.drifted = True
        open_ = [event for event in record.events if event.outputs is None]
        where = f" in {open_[0].label}" if open_ else ""
        self.add(
            row,
            "failed",
            f"MindSpore raises{where}: {record.raised}",
            remedy=self.first_remedy() or "the layers before it: compare their shapes",
        )

    def first_remedy(self) -> str:
        for name, found in self.mismatches.items():
            return f"{name}: " + ", ".join(each.remedy for each in found)
        return ""

    def settings(self, alignment: layers.Alignment) -> None:
        compared, done, unknown = 0, set(), []
        originals = dict(self.torch_net.named_modules())  # the copies run without dropout
        for each in alignment.pairs:
            key = (each.torch.owner, each.mindspore.owner)
            if key in done or (each.torch.kind is None and each.mindspore.kind is None):
                continue
            done.add(key)
            shape = next((a.shape for a in each.mindspore.inputs if hasattr(a, "shape")), None)
            found = differing(originals[each.torch.owner], each.mindspore.layer, shape)
            name = each.torch.owner or "the net"
            if found is None:
                if each.torch.kind is not each.mindspore.kind and each.torch.kind is not None:
                    self.add(
                        f"settings: {name}",
                        "failed",
                        f"{name} is {each.torch.type} in PyTorch, {each.mindspore.type} in "
                        "MindSpore",
                        remedy=f"the layer that corresponds to {each.torch.type}",
                    )
                else:
                    unknown.append(each.label)
                continue
            compared += count(each.torch.layer)
            if found:
                self.mismatches[each.torch.owner] = found
                self.add(
                    f"settings: {name}",
                    "failed",
                    f"{each.label}: " + "; ".join(map(str, found)),
                    remedy=", ".join(mismatch.remedy for mismatch in found),
                )
        said = alignment.said()
        if not self.mismatches:
            text = f"{compared} settings of {len(done)} layers alike"
            if unknown:
                text += f"; of a type that is not known: {', '.join(unknown[:_NAMED])}"
            self.add("settings", "ok", text)
        self.add("layers", "ok", f"{len(alignment.pairs)} aligned" + (f"; {said}" if said else ""))

    def judge_forward(
        self, row: str, mode: str, theirs: Record, alignment: layers.Alignment
    ) -> None:
        noise = self.noise(mode, theirs)
        first: tuple[Pair, Report] | None = None
        before: Pair | None = None
        drifting = 0
        themselves: list[tuple[Pair, Report]] = []
        alike: list[Pair] = []
        other: list[Pair] = []
        for each in alignment.pairs:
            (alike if layers.comparable(each) else other).append(each)
        for each in alike:
            floor = 4 * self.shake.get(each.torch.name, 0.0)
            report = layers.drift(each, noise, floor=floor)
            if report is None:
                if first is None:
                    before = each
                continue
            error = layers.known_error(each) if first is None else 0.0
            if error > 1e-6:
                fed = layers.feed_through(each, noise, floor=2 * error)
                if isinstance(fed, Report) and fed.ok:
                    self.shake[each.torch.name] = error
                    noise = self.noise(mode, theirs)
                    before = each
                    continue
            drifting += 1
            if first is None:
                first = each, report
            elif each.torch.kind is not None and len(themselves) < _NAMED:
                fed = layers.feed_through(each, noise, floor=floor)
                if isinstance(fed, Report) and not fed.ok:
                    themselves.append((each, fed))
        for each in alike[-1:]:
            for index, value in enumerate(each.mindspore.outputs or ()):
                self.seen[f"output {index} ({mode})"] = value
            for index, value in enumerate(each.torch.outputs or ()):
                self.theirs[f"output {index} ({mode})"] = value
        whole = alike[-1] if alike else None
        agreeing = (
            whole is not None
            and not whole.torch.owner
            and drifting
            and (layers.drift(whole, noise) is None)
        )
        if first is None and (whole is None or whole.torch.owner):
            self.add(row, "error", "the two nets' outputs are of different structure")
        elif whole is not None and (first is None or agreeing):
            text = f"{len(alike) - drifting} layers agree; the output to "
            text += f"{layers.margin(whole, noise):.2g} of its limit"
            if drifting:
                text += f"; {drifting} layers differ on the way, and the output does not"
            if other:
                text += f"; built differently: {', '.join(each.label for each in other[:_NAMED])}"
            if self.shake:
                text += (
                    f"; MindSpore's tanh is {layers.tanh_error():.1g} off on this device, seen in "
                    + ", ".join(self.shake)
                )
            self.add(row, "ok", text)
        elif first is not None:
            self.drifted = True
            self.drift_row(row, first, before, drifting, noise)
            for each, fed in themselves:
                self.checks.append(
                    steps.as_check(
                        f"{row}: {each.torch.name}",
                        fed,
                        remedy=self.remedy_of(each),
                    )
                )

    def drift_row(
        self,
        row: str,
        first: tuple[Pair, Report],
        before: Pair | None,
        drifting: int,
        noise: Noise,
    ) -> None:
        each, report = first
        check = steps.as_check(row, report)
        fed = layers.feed_through(each, noise) if each.torch.owner else None
        again = layers.record_mindspore(self.ms_net, self.ms_inputs)
        if again.raised is None and layers.unlike(each.mindspore, again):
            self.add(
                row,
                "failed",
                f"first drift at {each.label}: {check.summary}; MindSpore's net is random: the "
                "same call again returns something else",
                remedy="ops.dropout(x, p, training=self.training): by default it is always active",
                metrics=check.metrics,
            )
            return
        later = f"; {drifting - 1} after it drift, too" if drifting > 1 else ""
        remedy = self.remedy_of(each)
        if isinstance(fed, Report) and fed.ok:
            since = f"between {before.label} and it" if before else "in front of it"
            why = f"its input differs, the layer agrees on PyTorch's: look {since}"
            remedy = f"the code {since}, and layers there without a partner"
        elif fed is None and not each.torch.owner:
            since = f"after {before.label}" if before else "in the code of the net"
            why = f"no layer drifts: look {since}"
            remedy = f"the code {since}, and layers there without a partner"
        elif isinstance(fed, Raised):
            why = f"MindSpore's layer raises on PyTorch's input: {fed}"
        elif fed is None:
            why = "the inputs are of different form"
        else:
            why = "the layer itself, on PyTorch's input too"
        self.checks.append(
            Check(
                row,
                "failed",
                f"first drift at {each.label}: {check.summary}; {why}{later}",
                found=check.found,
                expected=check.expected,
                remedy=remedy or check.remedy,
                metrics=check.metrics,
            )
        )

    def remedy_of(self, each: Pair) -> str:
        found = self.mismatches.get(each.torch.owner)
        name = each.torch.owner or "the net"
        return f"{name}: " + ", ".join(mismatch.remedy for mismatch in found) if found else ""

    def running(self, net: Any, ours: dict[str, _Array]) -> None:
        """Running statistics after one call in training mode."""
        after = steps.state_of(net)
        checked, wrong = 0, []
        for here, there in self.matched.items():
            if not is_statistic(there) or there not in ours or here not in after:
                continue
            checked += 1
            report = layers.agree(
                ours[there],
                self.convert[here](after[here]),
                layers.swing(after[here], [state[here] for state in self.states]),
            )
            self.seen[there] = ours[there]
            self.theirs[here] = after[here]
            if report.ok:
                continue
            found = self.mismatches.get(here.rpartition(".")[0])
            if found:
                remedy = ", ".join(mismatch.remedy for mismatch in found)
                row = f"running statistics: {here}"
                self.checks.append(steps.as_check(row, report, remedy=remedy))
            else:
                wrong.append((here, report))
        if wrong:
            check = steps.as_check("running statistics", wrong[0][1])
            self.add(
                "running statistics",
                "failed",
                f"{len(wrong)} of {checked} differ after a call in training mode, {wrong[0][0]} "
                f"first: {check.summary}",
                found=check.found,
                remedy=_FIRST if self.drifted else check.remedy,
                metrics=check.metrics,
            )
        elif not any(check.id.startswith("running statistics") for check in self.checks):
            self.add(
                "running statistics",
                "ok",
                f"{checked} alike after a call in training mode"
                if checked
                else "no layer keeps running statistics",
            )

    # Loss

    def loss(self, base: Record | None) -> None:
        if self.torch_loss is None:
            for row in ("loss", "gradients"):
                self.add(row, "skipped", "no loss given: loss=(torch_loss, ms_loss)")
            return
        if base is None:
            self.add("loss", "skipped", "there is no output of PyTorch's net")
            return
        output = base.output
        theirs = attempt(self.torch_loss, output, self.torch_label)
        self.must_not_reach(theirs)
        if isinstance(theirs, Raised):
            raise ValueError(
                f"torch_loss does not take the output and this label: {theirs}; the output is "
                f"{_form(output)}, the label {_form(self.torch_label)}"
            )
        if getattr(theirs, "numel", lambda: 0)() != 1:
            raise ValueError(
                f"torch_loss returns {_form(theirs)}: a training step needs one number, such as "
                'reduction="mean"'
            )
        given = _mapped(output, lambda leaf: Argument.of(leaf).mindspore())
        ours = attempt(self.ms_loss, given, self.ms_label)
        note = ""
        is_integer = self.arguments[-1].dtype.startswith(("int", "uint"))
        if is_integer:
            note = "; the label goes as int64 to PyTorch, as int32 to MindSpore"
        if isinstance(ours, Raised) and is_integer:
            label = _to_mindspore(self.arguments[-1], "int64")
            again = attempt(self.ms_loss, given, label)
            if not isinstance(again, Raised):
                ours, self.ms_label = again, label
                note = "; the label goes as int64 to both"
        if isinstance(ours, Raised):
            self.add(
                "loss",
                "failed",
                f"MindSpore raises: {ours}",
                found=str(ours),
                remedy="look at the loss's arguments: dtype and shape of output and label",
            )
            return
        values = []
        for run in range(steps.RUNS + 1):
            moved = self.shaken_output(output, run)
            value = attempt(self.torch_loss, moved, self.moved_label(run))
            if not isinstance(value, Raised):
                values.append(np.array(to_numpy(value)[0]))
        theirs_, ours_ = np.array(to_numpy(theirs)[0]), np.array(to_numpy(ours)[0])
        report = layers.agree(ours_, theirs_, layers.swing(theirs_, values))
        self.scalar = ours_.size == 1
        if report.ok:
            self.add("loss", "ok", f"{float(theirs_):.6g} on both sides, on PyTorch's output{note}")
        else:
            check = steps.as_check("loss", report)
            remedy = check.remedy
            if ours_.shape != theirs_.shape:
                remedy = 'reduction="mean" (or the reduction of torch_loss): it returns one number'
            self.checks.append(
                Check(
                    "loss",
                    "failed",
                    check.summary + note,
                    found=check.found,
                    expected=check.expected,
                    remedy=remedy,
                    metrics=check.metrics,
                )
            )

    def must_not_reach(self, value: Any) -> None:
        """The output came without gradients: what the loss still depends on is its own affair."""
        import torch

        if not getattr(value, "requires_grad", False):
            return
        mine = [p for p in self.torch_net.parameters() if p.requires_grad]
        grads = torch.autograd.grad(value.sum(), mine, allow_unused=True)
        if any(grad is not None for grad in grads):
            raise TypeError(
                "torch_loss reaches into the net itself, of which check_migration runs copies: "
                "make it a function of output and label alone, with regularisation in the optimizer"
            )

    def shaken_output(self, output: Any, run: int) -> Any:
        import torch

        if run == steps.RUNS:
            return _mapped(output, steps.doubled)
        generator = torch.Generator().manual_seed(run)
        return _mapped(output, lambda leaf: steps.nudged(leaf, generator))

    def moved_label(self, run: int) -> Any:
        return steps.doubled(self.torch_label) if run == steps.RUNS else self.torch_label

    # Training

    def trained_names(self) -> tuple[list[Any], list[str]]:
        """MindSpore's parameters in the optimizer's order, and their names."""
        paths = {id(p): name for name, p in self.ms_net.parameters_and_names()}
        if self.ms_optimizer is not None:
            parameters = list(self.ms_optimizer.parameters)
        else:
            parameters = list(self.ms_net.trainable_params())
        return parameters, [paths[id(p)] for p in parameters]

    def train(self) -> None:
        self.optimizer_rows()
        if self.torch_loss is None:
            self.add("steps", "skipped", "no loss given: loss=(torch_loss, ms_loss)")
            return
        reason = ""
        if self.random:
            reason = "PyTorch's net is random in training mode"
        elif not getattr(self, "scalar", False):
            reason = "the loss gives no comparable number: see loss"
        if reason:
            self.add("gradients", "skipped", reason)
            self.add("steps", "skipped", reason)
            return
        parameters, names = self.trained_names()
        back = {there: here for here, there in self.matched.items()}
        base = self.torch_run()
        with self.ms_mode("train"), steps.restored(*self.kept()):
            ours = steps.ms_train(
                self.ms_net,
                self.ms_loss,
                self.ms_optimizer,
                tuple(parameters),
                names,
                [*self.ms_inputs, self.ms_label],
                self.count,
            )
        if isinstance(ours, Raised):
            self.add("gradients", "failed", f"MindSpore raises: {ours}", found=str(ours))
            self.add("steps", "skipped", "MindSpore raises: see gradients")
            return
        truth = self.torch_run(double=True)
        moved = [self.torch_run(seed=seed) for seed in range(steps.RUNS)]
        self.gradients = {}
        for there, mine in ours.grads.items():
            here = back.get(there)
            if here is None or mine is None or here not in base.grads:
                continue
            self.gradients[here] = self.gradient(here, mine, base, truth, moved)
        self.gradient_rows(base, back, names)
        self.vanishing = steps.vanished(self.gradients)
        if self.torch_optimizer is None:
            self.add("steps", "skipped", "no optimizer given: optimizer=(torch_opt, ms_opt)")
            return
        if self.vanishing:
            stir = self.vanishing
            moved = [self.torch_run(seed=seed, stir=stir) for seed in range(steps.RUNS)]
        self.base, self.moved = base, moved
        self.step_rows(base, moved, ours, self.count, "steps")

    def kept(self) -> list[Any]:
        return [self.ms_net] + ([self.ms_optimizer] if self.ms_optimizer is not None else [])

    def torch_run(
        self,
        *,
        seed: int | None = None,
        double: bool = False,
        stir: dict[str, float] | None = None,
    ) -> steps.Trajectory:
        loss_is_net = is_module(self.torch_loss)
        net, loss, optimizer = steps.copied(
            self.torch_net, self.torch_loss if loss_is_net else None, self.torch_optimizer
        )
        loss = loss if loss_is_net else self.torch_loss
        if not self.torch_net.training:
            net.train()
        layers.without_torch_dropout(net)
        inputs, label = self.torch_inputs, self.torch_label
        with ExitStack() as stack:
            if seed is not None:
                self.nudge(net, seed)
                inputs = self.moved_inputs(seed)
                stack.enter_context(_shaking(net, self.shake, seed))
            if double:
                net.double()
                if loss_is_net:
                    loss.double()
                inputs, label = steps.doubled(inputs), steps.doubled(label)
                optimizer = None
            try:
                return steps.torch_train(net, loss, optimizer, inputs, label, self.count, stir)
            except Exception as error:
                if double:  # a net that makes float32 tensors of its own
                    return steps.Trajectory()
                raise ValueError(
                    f"a training step of PyTorch raises {type(error).__name__}: {error}"
                ) from error

    def gradient(
        self,
        here: str,
        mine: _Array,
        base: steps.Trajectory,
        truth: steps.Trajectory,
        moved: list[steps.Trajectory],
    ) -> steps.Gradient:
        convert = self.convert[here]

        def read(run: steps.Trajectory) -> _Array | None:
            value = run.grads.get(here)
            return None if value is None else convert(value)

        theirs = read(base)
        if theirs is None:  # PyTorch has none where MindSpore has zeros
            theirs = np.zeros_like(mine)
        others = [value for value in map(read, moved) if value is not None]
        return steps.Gradient(theirs, mine, read(truth), others)

    def gradient_rows(
        self, base: steps.Trajectory, back: Mapping[str, str], names: list[str]
    ) -> None:
        missing = [
            here
            for here, grad in base.grads.items()
            if grad is not None and self.matched.get(here) not in names and here in self.matched
        ]
        if missing:
            whose = "the optimizer" if self.ms_optimizer is not None else "trainable_params()"
            self.add(
                "gradients: missing",
                "failed",
                f"not among {whose} of MindSpore: {', '.join(missing[:_NAMED])}",
                remedy="requires_grad = True, and give all of ms_net.trainable_params()",
            )
        sizes = [np.abs(g.torch).max(initial=0.0) for g in self.gradients.values()]
        around = float(max(sizes, default=0.0))
        wrong = []
        for here, gradient in self.gradients.items():
            self.seen[f"gradient of {here}"] = gradient.mindspore
            self.theirs[f"gradient of {here}"] = gradient.torch
            report = gradient.judge(around)
            if not report.ok:
                wrong.append((here, gradient, report))
        own = 0
        for here, gradient, report in wrong:
            check = steps.as_check(f"gradients: {here}", report)
            found, remedy = self.gradient_cause(here, gradient)
            if own < _NAMED and (found or remedy or not self.drifted):
                own += 1
                self.add(
                    check.id,
                    "failed",
                    check.summary,
                    found=found or check.found,
                    remedy=remedy or check.remedy,
                    metrics=check.metrics,
                )
        self.wrong_gradients = bool(wrong or missing)
        if len(wrong) > own:
            check = steps.as_check("gradients", wrong[0][2])
            shown = f", {own} of them above" if own else f", {wrong[0][0]} first: {check.summary}"
            self.add(
                "gradients",
                "failed",
                f"{len(wrong)} of {len(self.gradients)} differ{shown}",
                remedy=_FIRST if self.drifted else "first what the rows above name",
            )
        elif not wrong:
            vanishing = steps.vanished(self.gradients)
            text = f"{len(self.gradients)} agree"
            if vanishing:
                text += (
                    "; rounding alone, the true gradient is zero (a bias in front of a "
                    f"normalisation or softmax): {', '.join(list(vanishing)[:_NAMED])}"
                )
            self.add("gradients", "ok", text)

    def gradient_cause(self, here: str, gradient: steps.Gradient) -> tuple[str, str]:
        """What a wrong gradient is, and what to type, where that is known."""
        owner = here.rpartition(".")[0]
        padding = getattr(dict(self.torch_net.named_modules())[owner], "padding_idx", None)
        if padding is not None and gradient.torch.ndim == 2:
            rows = np.any(gradient.mindspore != 0, axis=1) & ~np.any(gradient.torch != 0, axis=1)
            if np.flatnonzero(rows).tolist() == [padding]:
                return (
                    f"row {padding}, the padding row, is trained in MindSpore alone",
                    "nn.Embedding has a gradient for padding_idx, too: multiply what it returns "
                    f"by (ids != {padding}).expand_dims(-1), or this row of the gradient by 0",
                )
        if not np.any(gradient.mindspore) and np.any(gradient.torch):
            return (
                "zero in MindSpore",
                "what cuts it off: asnumpy(), argmax, stop_gradient, a Python number, or a "
                "parameter that construct does not use",
            )
        if not np.any(gradient.torch):
            return (
                "zero in PyTorch, not in MindSpore",
                "what cuts it off in PyTorch: detach(), no_grad(), an unused parameter",
            )
        other = steps.swapped(here, self.gradients)
        if other:
            return (
                f"it is the gradient of {other}",
                "the two parameters are swapped in construct",
            )
        setting = self.mismatches.get(owner)
        return ("", ", ".join(mismatch.remedy for mismatch in setting) if setting else "")

    # Optimizer

    def optimizer_rows(self) -> None:
        if self.torch_optimizer is None:
            for row in ("optimizer", "same gradients"):
                self.add(row, "skipped", "no optimizer given: optimizer=(torch_opt, ms_opt)")
            return
        _, order = self.trained_names()
        by_id = {id(p): name for name, p in self.torch_net.named_parameters()}
        theirs = steps.torch_options(self.torch_optimizer, by_id)
        back = {there: here for here, there in self.matched.items()}
        ours = {
            back[name]: options
            for name, options in zip(order, steps.ms_options(self.ms_optimizer), strict=True)
            if name in back
        }
        self.option_rows(theirs, ours)
        shared = [name for name in theirs if name in ours]
        self.same_gradients(shared, order, back)

    def option_rows(
        self, theirs: dict[str, dict[str, Any]], ours: dict[str, dict[str, Any]]
    ) -> None:
        said, remedies = [], []
        trained = {n for n, p in self.torch_net.named_parameters() if p.requires_grad}
        for side, only in (
            ("PyTorch", [n for n in theirs if n in trained and n not in ours]),
            ("MindSpore", [n for n in ours if n not in theirs]),
        ):
            if only:
                other = "ms" if side == "PyTorch" else "torch"
                said.append(f"only {side}'s optimizer holds {', '.join(only[:_NAMED])}")
                remedies.append(f"give {other}_optimizer these parameters, too")
        for mismatch, names in steps.option_mismatches(theirs, ours).values():
            all_ = len(names) == len(theirs)
            shown = "every parameter" if all_ else ", ".join(names[:_NAMED])
            said.append(f"{mismatch}, for {shown}")
            remedy = mismatch.remedy
            if hasattr(self.ms_optimizer, "param_groups"):
                remedy = remedy.replace("learning_rate", "lr")
            if not all_:
                remedy += f" for {shown}, in groups: [{{'params': [...], ...}}, ...]"
                if mismatch.name == "weight_decay" and mismatch.mindspore == 0:
                    remedy += (
                        " (ungrouped, MindSpore leaves parameters with beta or gamma in their "
                        "name out)"
                    )
            remedies.append(remedy)
        self.known = steps.formula(self.torch_optimizer, self.ms_optimizer)
        if said:
            self.add("optimizer", "failed", "; ".join(said), remedy="; ".join(remedies))
        else:
            name = steps.optimizer_name(self.ms_optimizer)
            text = f"{steps.optimizer_name(self.torch_optimizer)} and {name}: options alike"
            self.add("optimizer", "ok", text)

    def same_gradients(self, shared: list[str], order: list[str], back: Mapping[str, str]) -> None:
        row = "same gradients"
        shapes = {
            name: tuple(p.shape) for name, p in self.torch_net.named_parameters() if name in shared
        }
        draws = [steps.drawn(shapes, step) for step in range(self.count)]
        runs = []
        for double in (False, True):
            net, optimizer = steps.copied(self.torch_net, self.torch_optimizer)
            if double:
                net.double()
            done = attempt(steps.torch_fed, net, optimizer, draws)
            if isinstance(done, Raised):
                self.add(row, "error", f"PyTorch's optimizer raises: {done}")
                return
            runs.append(done)
        zeros = {name: p.shape for name, p in self.ms_net.parameters_and_names()}
        converted = [
            {
                name: self.convert[back[name]](draw[back[name]])
                if back.get(name) in draw
                else np.zeros(zeros[name], dtype=np.float32)
                for name in order
            }
            for draw in draws
        ]
        with steps.restored(*self.kept()):
            ours = steps.ms_fed(self.ms_optimizer, order, converted)
        if isinstance(ours, Raised):
            self.add(row, "failed", f"MindSpore's optimizer raises: {ours}", found=str(ours))
            return
        wrong: list[tuple[str, Report]] = []
        still = []
        values = dict(self.torch_net.named_parameters())
        for name in shared:
            convert = self.convert[name]
            theirs, exact = (convert(run[name]) for run in runs)
            mine = ours[self.matched[name]]
            value = convert(np.array(to_numpy(values[name])[0]))
            if np.any(theirs) and not np.any(mine):
                still.append(name)
            report = steps.moved_alike(
                mine, theirs, value, layers.swing(theirs, [exact]), self.count
            )
            if not report.ok:
                wrong.append((name, report))
        if still:
            said, remedy = self.said_formula()
            self.add(
                row,
                "failed",
                f"{', '.join(still[:_NAMED])} did not move in {self.count} steps{said}",
                remedy=remedy or "an optimizer that works on this device, and a rate above 0",
            )
        elif wrong:
            worst = max(wrong, key=lambda pair_: _limits(pair_[1]))
            check = steps.as_check(row, worst[1])
            said, remedy = self.said_formula()
            if any(c.id == "optimizer" and not c for c in self.checks):
                remedy = "; ".join(
                    [c.remedy for c in self.checks if c.id == "optimizer" and not c]
                    + ([remedy] if remedy else [])
                )
            self.checks.append(
                Check(
                    row,
                    "failed",
                    f"{len(wrong)} of {len(shared)} parameters move otherwise in {self.count} "
                    f"steps on the same gradients, {worst[0]} most: {check.summary}{said}",
                    found=check.found,
                    remedy=remedy or check.remedy,
                    metrics=check.metrics,
                )
            )
        else:
            self.add(
                row,
                "ok",
                f"{len(shared)} parameters move alike in {self.count} steps on gradients of size "
                "1e-9 to 1",
            )
        self.optimizer_differs = bool(wrong or still)

    def said_formula(self) -> tuple[str, str]:
        return (f"; {self.known[0]}", self.known[1]) if self.known else ("", "")

    def step_rows(
        self,
        base: steps.Trajectory,
        moved: list[steps.Trajectory],
        ours: steps.Trajectory,
        count: int,
        row: str,
    ) -> None:
        theirs = np.stack(base.losses[:count])
        mine = np.stack([value.reshape(()) for value in ours.losses])
        noise = layers.swing(theirs, [np.stack(run.losses[:count]) for run in moved])
        report = layers.agree(mine, theirs, noise, times=layers.FAR)
        bad: list[tuple[str, Report]] = []
        for here, there in self.matched.items():
            if there not in ours.last or here not in base.last:
                continue
            convert = self.convert[here]
            runs = []
            for run in (base, *moved):
                last = run.first if count == 1 else run.last
                runs.append(convert(last[here]).astype(np.float64) - convert(run.start[here]))
            self.seen[f"{there} after {count} steps"] = ours.last[there]
            self.theirs[f"{here} after {count} steps"] = base.last[here]
            step = ours.last[there].astype(np.float64) - ours.start[there]
            value = convert(base.start[here])
            if value.dtype.kind not in "fc":
                continue
            found = steps.moved_alike(step, runs[0], value, layers.swing(runs[0], runs[1:]), count)
            if not found.ok:
                bad.append((here, found))
        if report.ok and not bad:
            drift_ = max(
                float(np.abs(run - theirs).max())
                for run in (np.stack(r.losses[:count]) for r in moved)
            )
            self.add(
                row,
                "ok",
                f"{count} steps: losses within {np.abs(mine - theirs).max():.2g} (PyTorch one ulp "
                f"off: {drift_:.2g}), parameters and running statistics moved alike",
                metrics={"loss": float(np.abs(mine - theirs).max()), "drift": drift_},
            )
            return
        said = ""
        remedy = ""
        if getattr(self, "optimizer_differs", False):
            said, remedy = self.said_formula()
            remedy = remedy or "what the rows optimizer and same gradients name"
        elif self.drifted:
            remedy = _FIRST
        elif self.wrong_gradients:
            remedy = "first what the rows of gradients name"
        if not report.ok:
            check = steps.as_check(row, report)
            text = f"losses differ: {check.summary}"
        else:
            worst = max(bad, key=lambda pair_: _limits(pair_[1]))
            check = steps.as_check(row, worst[1])
            text = f"{len(bad)} parameters move otherwise, {worst[0]} most: {check.summary}"
        self.checks.append(
            Check(
                row,
                "failed",
                f"{count} steps: {text}{said}",
                found=check.found,
                remedy=remedy or check.remedy,
                metrics=check.metrics,
            )
        )

    # The rest

    def finite(self) -> None:
        inputs = {f"batch[{i}]": a.value for i, a in enumerate(self.arguments) if a.is_float}
        weights = steps.ms_state(self.ms_net)
        bad, where, _ = steps.statistics({**inputs, **self.seen, **weights})
        _, _, sizes = steps.statistics(weights)
        theirs, _, _ = steps.statistics({**inputs, **self.theirs})
        metrics = {"nonfinite": bad}
        if bad and theirs:
            self.add(
                "finite",
                "ok",
                f"{bad} values are NaN or Inf, first in {where}: in PyTorch, too",
                metrics=metrics,
            )
        elif bad:
            self.add(
                "finite",
                "failed",
                f"{bad} values are NaN or Inf in MindSpore alone, first in {where}",
                remedy="float32 where float16 overflows, or first what the rows above name",
                metrics=metrics,
            )
        else:
            self.add("finite", "ok", f"no NaN or Inf; weights: {sizes or 'none'}", metrics=metrics)

    def other_mode(self, mode: str) -> None:
        with run_mode(mode):
            self.mode_forward(mode)
            if self.torch_loss is not None and hasattr(self, "gradients"):
                self.mode_step(mode)

    def mode_forward(self, mode: str) -> None:
        row = f"{mode}: forward"
        net = self.torch_copy("eval")
        theirs = layers.record_torch(net, self.torch_inputs, keep=False)
        with self.ms_mode("eval"), steps.restored(self.ms_net):
            output = attempt(in_mode(self.ms_net, mode), *self.ms_inputs)
            if isinstance(output, Raised):
                self.add(
                    row,
                    "failed",
                    f"{output}",
                    found=str(output),
                    remedy="what compiled code may hold: msnb differences graph (construct's "
                    "first argument is called self)",
                )
                return
            ours = [np.array(to_numpy(leaf)[0]) for leaf in layers._tensors(output)]
        noise = self.noise("eval", theirs)
        event = theirs.events[-1]
        report = layers.drift(Pair(event, layers.Event("", self.ms_net, None, outputs=ours)), noise)
        if report is None:
            self.add(row, "ok", "the output as in PyTorch")
        else:
            self.checks.append(steps.as_check(row, report, remedy=_FIRST if self.drifted else ""))

    def mode_step(self, mode: str) -> None:
        row = f"{mode}: step" if self.ms_optimizer is not None else f"{mode}: gradients"
        parameters, names = self.trained_names()
        with self.ms_mode("train"), steps.restored(*self.kept()):
            ours = steps.ms_train(
                self.ms_net,
                self.ms_loss,
                self.ms_optimizer,
                tuple(parameters),
                names,
                [*self.ms_inputs, self.ms_label],
                1,
                wrap=steps.compiled if mode == "jit" else None,
            )
        if isinstance(ours, Raised):
            self.add(
                row,
                "failed",
                f"{ours}",
                found=str(ours),
                remedy="what compiled code may hold: msnb differences graph",
            )
            return
        back = {there: here for here, there in self.matched.items()}
        sizes = [np.abs(g.torch).max(initial=0.0) for g in self.gradients.values()]
        for there, mine in ours.grads.items():
            gradient = self.gradients.get(back.get(there, ""))
            if gradient is None or mine is None:
                continue
            again = steps.Gradient(gradient.torch, mine, gradient.truth, gradient.moved)
            report = again.judge(float(max(sizes, default=0.0)))
            if not report.ok:
                self.checks.append(
                    steps.as_check(
                        f"{mode}: gradients: {back[there]}",
                        report,
                        remedy="first what the rows above name" if self.drifted else "",
                    )
                )
                return
        if self.ms_optimizer is not None:
            self.step_rows(self.base, self.moved, ours, 1, row)
        else:
            self.add(row, "ok", f"{len(ours.grads)} gradients as in PyTorch")


@contextmanager
def _shaking(net: Any, shake: Mapping[str, float], seed: int) -> Iterator[None]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    handles = []
    for name, module in net.named_modules():
        size = shake.get(name)
        if size:
            handles.append(
                module.register_forward_hook(
                    lambda _, args, output, size=size: layers.shaken(output, size, generator)
                )
            )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _outputs(record: Record) -> dict[str, list[_Array]]:
    return {event.name: event.outputs for event in record.events if event.outputs is not None}


def _relative(mine: _Array, value: _Array) -> float:
    with np.errstate(all="ignore"):
        gap = np.abs(mine.astype(np.float64) - value).max(initial=0.0)
        size = np.abs(value).max(initial=0.0)
    return float(gap / size) if size else float(gap > 0)


def _limits(report: Report) -> float:
    return max((check.metrics.get("limits", 0.0) for check in report), default=0.0)


def _form(value: Any) -> str:
    shapes = [
        f"{tuple(leaf.shape)} {str(leaf.dtype).rpartition('.')[2]}"
        for _, leaf in places(value)
        if hasattr(leaf, "shape")
    ]
    return ", ".join(shapes) or type(value).__name__


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(_mapped(item, change) for item in value)
    return change(value) if hasattr(value, "dtype") else value

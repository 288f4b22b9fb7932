"""StepGuard: a training loop that runs, exits 0 and is wrong, caught in the step that is wrong."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from msnb.log import TrainLog, _number, _rate
from msnb.report import Check, Report

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["StepGuard", "TrainingStopped"]

# What is judged: id, and how it reads when nothing was wrong. In the order of causes, since a NaN
# loss is followed by NaN gradients and those by NaN weights.
_KINDS = {
    "parameters": "the optimizer holds this net's parameters",
    "order": "gradients are in the optimizer's order",
    "training": "Dropout and BatchNorm are in training mode",
    "loss": "the loss is finite",
    "gradients": "gradients are finite",
    "weights": "weights are finite",
    "overflow": "no overflow, or steps skipped because of one",
    "zero gradients": "gradients are not all zero",
    "derivative": "the loss changes along the gradient as the gradient says",
    "movement": "parameters with a gradient move",
    "foreign movement": "nothing moves without a gradient",
    "descent": "the first step goes downhill",
    "norm": "the gradient norm does not explode",
    "constant": "the loss changes",
    "stale": "gradients are new in each step",
}
_CUT_OFF = (
    "set_data or load_param_into_net after the first step cuts a parameter off from its optimizer",
    "ops.assign(parameter, value), msnb.load_checkpoint, or a new optimizer after loading",
)
_ADAPTIVE = ("Adam", "RMS", "Ada", "Lamb", "LARS", "FTRL", "Rprop", "Lion", "Thor")


class TrainingStopped(RuntimeError):
    """A StepGuard with ``stop=True`` found a fault: ``check`` says which, ``step`` when.

    ``checkpoint`` is the path of the last good state, or None where none was asked for.

    >>> TrainingStopped(Check("loss", "failed", "step 3: the loss is nan"), 3, None).step
    3
    """

    def __init__(self, check: Check, step: int, checkpoint: Path | None) -> None:
        text = f"{check.summary}\nlikely cause: {check.found}\nto do: {check.remedy}"
        if checkpoint is not None:
            text += f"\nthe last good state is in {str(checkpoint)!r}"
        super().__init__(text)
        self.check = check
        self.step = step
        self.checkpoint = checkpoint

    def __reduce__(self) -> tuple[Any, ...]:
        return (TrainingStopped, (self.check, self.step, self.checkpoint))


class StepGuard:
    """Watches a MindSpore training loop, and names what is wrong in the step in which it happens.

    In a loop of your own, make it after the optimizer, and call ``step`` after the optimizer's
    step; a compiled step must return the gradients too::

        guard = msnb.StepGuard(net, optimizer, forward=forward_fn)
        for x, y in loader:
            (loss, _), grads = grad_fn(x, y)
            optimizer(grads)
            guard.step(loss, grads, batch=(x, y))
        guard.report.require()

    It is a MindSpore ``Callback`` as well: ``model.train(1, loader, callbacks=[guard])``. It has
    the train cell return its gradients (``return_grad`` of ``nn.TrainOneStepCell``), so
    ``net_outputs`` is then ``(loss, {name: gradient})``, also for other callbacks.

    Looked for: NaN and infinity in loss, gradients and weights; gradients that are all zero;
    parameters that do not move, or move without a gradient; a gradient norm that explodes; a loss
    or gradients that never change; an optimizer that holds another net's parameters, or the same in
    another order than the gradients; Dropout and BatchNorm in evaluation mode; a first step uphill;
    and, with
    ``forward``, gradients that are not those of the loss. Steps skipped because of an
    overflow are counted. Each kind of fault is printed once, with step, parameter, likely cause and
    what to do, and is in ``report``.

    - ``net``: the ``nn.Cell`` that is trained, or None
    - ``optimizer``: of ``mindspore.nn``, ``experimental.optim`` or ``mint.optim``
    - ``forward``: computes the loss of a batch, or a tuple that begins with it; it is called in the
      first step, some ten times, with the weights from before that step and close to them, which
      are then put back: see ``verify``
    - ``params``: what ``value_and_grad`` was given as weights, where not ``optimizer.parameters``
    - ``stop``: raise ``TrainingStopped`` at a fault; ``checkpoint``: a path to which the weights
      and the optimizer's state from before that step are then saved, see ``msnb.load_checkpoint``
    - ``every``: look at the weights in each N-th step only; loss and gradients are always looked at
    - ``max_norm``, ``explosion``: limits of the gradient norm, absolute, and as a multiple of the
      median of the last 50 steps (from the 6th step on)
    - ``constant``: how many equal losses or gradients, and steps of rate 0, in a row are a fault
    - ``accumulate``: the optimizer steps in each N-th call only
    - ``max_skips``: how many overflow steps in a row are a fault
    - ``verify_first_step``: as a Callback, verify the first step with the train cell's network
    - ``log``: a TrainLog, whose ``step`` is called with the loss, ``grad_norm`` and what else
      ``step`` was given

    The parameters are held twice, to see whether they moved. On a CPU the arrays are read by NumPy,
    without a copy; elsewhere sums are taken on the device and only they are fetched. That second
    way was tested on a CPU only, not on Ascend.

    Raises ``TypeError`` and ``ValueError`` for a bad argument.

    >>> guard = StepGuard(net, optimizer, stop=True)  # doctest: +SKIP
    >>> guard.step(loss, grads)  # doctest: +SKIP
    TrainingStopped: step 1: all 4 gradients are zero (fc1.weight, fc1.bias, fc2.weight, fc2.bias)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> StepGuard:
        # Model.train takes instances of mindspore's Callback only, which is imported when needed.
        kind: Any = cls
        guard: StepGuard = object.__new__(_as_callback(kind))
        return guard

    def __init__(
        self,
        net: Any,
        optimizer: Any,
        *,
        forward: Callable[..., Any] | None = None,
        params: Iterable[Any] | None = None,
        stop: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int = 1,
        max_norm: float | None = None,
        explosion: float = 100.0,
        constant: int = 20,
        accumulate: int = 1,
        max_skips: int = 40,
        verify_first_step: bool = True,
        log: TrainLog | None = None,
    ) -> None:
        from mindspore import nn
        from mindspore.experimental import optim

        from msnb.checkpoint import TRAINING, _as_path

        if net is not None and not isinstance(net, nn.Cell):
            raise TypeError(f"net is a mindspore nn.Cell or None, not {_shown(net)}")
        if not isinstance(optimizer, (nn.Optimizer, optim.Optimizer)):
            raise TypeError(
                "optimizer is a MindSpore optimizer, for example "
                f"nn.Momentum(net.trainable_params(), 0.01, 0.9), not {_shown(optimizer)}"
            )
        for name, number in (
            ("every", every),
            ("constant", constant),
            ("accumulate", accumulate),
            ("max_skips", max_skips),
        ):
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ValueError(f"{name} is a whole number from 1 on, not {number!r}")
        for name, limit, least in (("max_norm", max_norm, 0.0), ("explosion", explosion, 1.0)):
            if limit is not None and not (isinstance(limit, (int, float)) and limit > least):
                raise ValueError(f"{name} is a number above {least:g}, not {limit!r}")
        if forward is not None and not callable(forward):
            raise TypeError(f"forward is a function of a batch, not {_shown(forward)}")
        if log is not None and not isinstance(log, TrainLog):
            raise TypeError(f"log is an msnb.TrainLog, not {_shown(log)}")
        if checkpoint is not None and net is None:
            raise ValueError("a checkpoint holds the net's weights: give the net, not None")
        if checkpoint is not None and every != 1:
            raise ValueError(
                f"with a checkpoint, every is 1, not {every!r}: a state that was not looked at "
                "cannot be called good"
            )
        if checkpoint is not None and not stop:
            raise ValueError(
                "checkpoint is where the last good state goes when the guard stops: "
                "give stop=True too"
            )
        self._net, self._optimizer = net, optimizer
        self._held = list(optimizer.parameters)
        self._order = self._held if params is None else list(params)
        self._stop, self._every, self._log = stop, every, log
        self._checkpoint = None if checkpoint is None else _as_path(checkpoint, TRAINING)
        self._max_norm, self._explosion = max_norm, explosion
        self._constant, self._accumulate, self._max_skips = constant, accumulate, max_skips
        self._verify_first, self._forward = verify_first_step, forward
        self._arrays = _arrays()
        self._watched = _unique([*self._held, *(net.get_parameters() if net is not None else ())])
        self._index = {id(parameter): i for i, parameter in enumerate(self._watched)}
        self._modal = _modal_cells(net)
        self._faults: dict[str, Check] = {}
        self._judged: dict[str, int] = {}
        self._notes: dict[str, str] = {}
        self._new: list[Check] = []
        self._number = 0
        self._had = [False] * len(self._order)  # whether it had a gradient in any step so far
        self._norms: deque[float] = deque(maxlen=50)
        self._last: tuple[float, int] = (math.nan, 0)  # loss, and how often in a row
        self._last_squares: tuple[Any, int] = (None, 0)
        self._misfit = False  # whether gradients have other shapes than their parameters
        self._zero: list[bool] = []  # which gradients are zero in this step
        self._skipped = self._skips_in_row = self._idle = self._zero_rate = self._tiny = 0
        self._first_move, self._moved_once = True, False
        self._snapshot: dict[str, Any] | None = None
        self._remember()
        if not all(self._arrays.finite(self._watched)):
            bad = self._names(p for p in self._watched if not self._arrays.finite([p])[0])
            self._fault(
                "weights",
                f"before the first step: {bad} not finite",
                "the weights were loaded from a run that had diverged, or an initialiser divides "
                "by 0",
                "look at the parameters before training: parameter.asnumpy()",
            )

    # The loop's side

    def step(
        self,
        loss: Any,
        grads: Any = None,
        *,
        batch: Any = None,
        skipped: Any = None,
        **line: Any,
    ) -> None:
        """Judge one step; call it after the optimizer's step.

        ``loss``: one number, as TrainLog takes it; not multiplied by a loss scale.

        ``grads``: what the optimizer was given: one tensor per parameter, in a tuple or, by name,
        in a dict; float16, bfloat16 or float32, of the parameters' shapes.

        ``batch``: the step's inputs, in a tuple; ``forward`` is called with them, and they are
        looked at where the loss is not finite.

        ``skipped``: true where your loop left the optimizer out because of an overflow. Found out
        without it where gradients are not finite and no weight moved.

        ``line``: further fields of the TrainLog's line: lr, epoch, step ...

        Raises ``TrainingStopped`` where asked for, and ``TypeError`` or ``ValueError`` for what is
        not a loss or not gradients.

        >>> guard.step(loss, grads, epoch=1, lr=optimizer)  # doctest: +SKIP
        """
        value = float(_number("loss", loss))
        if line and self._log is None:
            raise TypeError(
                f"step has no argument {min(line)!r}; the fields of a log's line are taken where "
                "the guard has a log: StepGuard(net, optimizer, log=msnb.TrainLog(path))"
            )
        self._new = []
        gradients = None if grads is None else self._as_list(grads)
        self._number += 1
        squares = None if gradients is None else self._arrays.squares(gradients)
        if self._log is not None:
            if squares is not None:
                line = {"grad_norm": float(math.sqrt(squares.sum())), **line}
            self._log.step(loss=value, batch=batch, **line)
        self._judge(value, gradients, squares, batch, None if skipped is None else bool(skipped))
        if self._new and self._stop:
            check = min(self._new, key=lambda check: list(_KINDS).index(check.id))
            raise TrainingStopped(check, self._number, self._save())
        self._remember()

    def verify(self, grad_fn: Callable[..., Any], *inputs: Any) -> Check:
        """Whether ``grad_fn`` returns the gradient of its loss, by finite differences.

        The loss must change along the gradient g at the rate |g|² that g itself predicts. Central
        differences, with five step lengths that should change the loss by 0.1 to 10 %; one that
        agrees within 10 % is enough. Where none does, each parameter is tried alone. Found this
        way: ``has_aux`` forgotten, branches cut off from the gradient (NumPy, argmax,
        stop_gradient), gradients of other parameters or in another order, of the wrong sign, and
        those still multiplied by a loss scale. Dropout is off meanwhile; the weights are put back
        bit by bit. The Check is in ``report`` too, under ``derivative``; skipped, with the reason,
        where the loss is random.

        ``grad_fn`` comes from ``mindspore.value_and_grad``; ``inputs`` is a batch. It costs about
        ten calls.

        >>> guard.verify(grad_fn, x, y).status  # doctest: +SKIP
        'ok'
        """
        off = [cell for cell in self._modal if "Dropout" in type(cell).__name__ and cell.training]
        for cell in off:
            cell.set_train(False)
        try:
            result = grad_fn(*inputs)
            if not isinstance(result, tuple) or len(result) != 2:
                raise ValueError(
                    "grad_fn returns (loss, gradients), as mindspore.value_and_grad's functions "
                    f"do, not {_shown(result)}"
                )
            loss = _first(result[0])
            self._new = []
            self._derivative(
                float(_number("loss", loss)),
                self._as_list(result[1]),
                lambda: grad_fn(*inputs)[0],
                {},
            )
        finally:
            for cell in off:
                cell.set_train(True)
        if self._new and self._stop:
            raise TrainingStopped(self._new[0], self._number, None)
        return self.report["derivative"]

    @property
    def report(self) -> Report:
        """What was judged so far: a Check for each kind of fault, with the first one found."""
        checks = []
        for kind, meaning in _KINDS.items():
            if kind in self._faults:
                checks.append(self._faults[kind])
            elif count := self._judged.get(kind, 0):
                note = self._notes.get(kind, "")
                steps = f"{count} step" + "s" * (count != 1)
                checks.append(Check(kind, "ok", f"{meaning}: {steps}" + f"; {note}" * bool(note)))
            else:
                checks.append(Check(kind, "skipped", self._notes.get(kind) or _never(kind)))
        return Report("StepGuard", checks)

    def __repr__(self) -> str:
        found = ", ".join(self._faults) or "nothing wrong"
        return f"<StepGuard, {self._number} steps: {found}>"

    # Model.train's side

    def on_train_begin(self, run_context: Any) -> None:
        """Have the train cell return its gradients; called by ``Model.train``."""
        from mindspore import nn

        cell = run_context.original_args().train_network
        # Cells that scale the loss override construct, and know nothing of return_grad.
        plain = isinstance(cell, nn.TrainOneStepCell) and (
            type(cell).construct is nn.TrainOneStepCell.construct
        )
        if plain and not cell.return_grad:
            cell.return_grad = True
            cell.weights_name = [parameter.name for parameter in cell.optimizer.parameters]
        self._remember()

    def on_train_step_end(self, run_context: Any) -> None:
        """Judge the step; called by ``Model.train``, with data sinking once per sink only."""
        arguments = run_context.original_args()
        outputs, cell = arguments.net_outputs, arguments.train_network
        loss, grads = outputs, None
        if isinstance(outputs, (tuple, list)):
            loss = outputs[0]
            if isinstance(outputs[-1], dict):
                grads = tuple(outputs[-1].values())
            elif len(outputs) == 3:  # a cell with a loss scale: (loss, overflow, scale)
                return self.step(loss, skipped=bool(_host(outputs[1]).any()))
        if self._forward is None and grads is not None and self._verify_first:
            self._forward = cell.network
        return self.step(loss, grads, batch=getattr(arguments, "train_dataset_element", None))

    # Judging

    def _judge(
        self,
        loss: float,
        gradients: list[Any] | None,
        squares: Array | None,
        batch: Any,
        skipped: bool | None,
    ) -> None:
        step = self._number
        if step == 1:
            self._judge_holdings()
        self._judge_modes()
        finite = squares is None or bool(_isfinite(squares))
        if not finite and gradients is not None and squares is not None:
            # A sum of squares overflows before its terms do.
            finite = all(self._arrays.finite(gradients))
        look = step % self._every == 0 or step == 1 or not finite
        moved = self._moved() if look and self._before is not None else None
        held = [self._index[id(parameter)] for parameter in self._held]
        still = moved is not None and not any(moved[i] for i in held)
        called = self._calls() != self._calls_before
        if skipped is None:
            skipped = not finite and (still or (moved is None and not called and self._counts))
        self._tick("loss")
        if not math.isfinite(loss):
            cured = " A loss scaler that skips the step does not cure this." if skipped else ""
            self._fault(
                "loss",
                f"step {step}: the loss is {loss}",
                self._why_loss(batch) + cured,
                "compute the loss in float32 (logits.astype(ms.float32)); log(x + 1e-6), "
                "sqrt(x + 1e-6); look at the batch for NaN; a lower learning rate",
            )
        self._judge_skips(skipped)
        if gradients is not None and squares is not None:
            self._judge_gradients(loss, gradients, squares, finite, skipped)
        if look:
            self._judge_finite_weights(finite, skipped)
        if self._forward is not None and step == 1 and finite and math.isfinite(loss):
            if self._misfit:
                pass
            elif isinstance(batch, (tuple, list)) and gradients is not None and self._before:
                function, inputs = self._forward, batch
                self._derivative(loss, gradients, lambda: function(*inputs), self._before)
            else:
                self._notes["derivative"] = (
                    "forward needs a batch: guard.step(loss, grads, batch=(x, y))"
                )
        if moved is not None and not skipped and finite:
            fitting = None if self._misfit else gradients
            self._judge_movement(moved, still, called, fitting, squares)
        self._judge_repetition(loss, squares, skipped)

    def _judge_holdings(self) -> None:
        if self._net is not None:
            self._tick("parameters")
            own = {id(parameter) for parameter in self._net.get_parameters()}
            foreign = [p for p in self._held if id(p) not in own]
            if foreign:
                self._fault(
                    "parameters",
                    f"step 1: the optimizer holds {len(foreign)} of {len(self._held)} parameters "
                    f"that are not this net's: {self._names(foreign)}",
                    "the optimizer was made from another net, or before a layer of this one was "
                    "replaced",
                    "make the optimizer after the net is complete, from net.trainable_params()",
                )
            out = [p for p in self._net.trainable_params() if id(p) not in set(map(id, self._held))]
            if out:
                self._notes["parameters"] = f"not in the optimizer: {self._names(out)}"
        self._tick("order")
        if self._order is not self._held:
            wanted, given = list(map(id, self._held)), list(map(id, self._order))
            if wanted == given:
                return
            place = next(
                (i for i, (a, b) in enumerate(zip(wanted, given)) if a != b),  # noqa: B905
                min(len(wanted), len(given)),
            )
            pair = [ps[place] if place < len(ps) else None for ps in (self._order, self._held)]
            names = self._told_apart(*pair)
            other = set(wanted) != set(given)
            self._fault(
                "order",
                f"step 1: gradient {place} is that of {names[0]}, and the optimizer applies it to "
                f"{names[1]}",
                "value_and_grad was given other parameters than the optimizer"
                if other
                else "the optimizer's groups put the parameters in another order than "
                "value_and_grad was given",
                "ms.value_and_grad(forward_fn, None, optimizer.parameters, has_aux=True)",
            )

    def _told_apart(self, *pair: Any) -> list[str]:
        """The names of two parameters; where they are equal, with the net or the shape of each."""
        names = [parameter.name if parameter is not None else "nothing" for parameter in pair]
        if len(set(names)) > 1:
            return names
        own = set() if self._net is None else {id(p) for p in self._net.get_parameters()}
        owners = ["this net's" if id(p) in own else "another net's" for p in pair]
        if len(set(owners)) > 1:
            return [f"{owner} {name}" for owner, name in zip(owners, names, strict=True)]
        shapes = [tuple(parameter.shape) for parameter in pair]
        return [f"one {names[0]} {shapes[0]}", f"another {names[1]} {shapes[1]}"]

    def _judge_modes(self) -> None:
        if self._net is None or not self._modal:
            self._notes["training"] = "no Dropout and no BatchNorm to look at"
            return
        self._tick("training")
        off = list(dict.fromkeys(type(cell).__name__ for cell in self._modal if not cell.training))
        if self._net.training:
            if off:
                self._notes["training"] = f"in evaluation mode by themselves: {', '.join(off)}"
        elif off:
            self._fault(
                "training",
                f"step {self._number}: the net is in evaluation mode: "
                f"{', '.join(off)} {'does' if len(off) == 1 else 'do'} not train",
                "a MindSpore net starts in evaluation mode"
                if self._number == 1
                else "an evaluation switched it off, and nothing switched it on again",
                "net.set_train() before the loop, and again after each evaluation",
            )

    def _judge_skips(self, skipped: bool) -> None:
        self._tick("overflow")
        self._skips_in_row = self._skips_in_row + 1 if skipped else 0
        self._skipped += skipped
        if self._skipped:
            self._notes["overflow"] = f"{self._skipped} skipped"
        if self._skips_in_row >= self._max_skips:
            self._fault(
                "overflow",
                f"step {self._number}: skipped because of an overflow, {self._skips_in_row} times "
                "in a row",
                "the forward pass itself overflows: a lower loss scale cannot cure that; or the "
                "scaler is never told to lower the scale",
                "scaler.adjust(is_finite) in each step; the layer that overflows in float32",
            )

    def _judge_gradients(
        self, loss: float, gradients: list[Any], squares: Array, finite: bool, skipped: bool
    ) -> None:
        step = self._number
        self._tick("gradients")
        if not finite:
            if not skipped:
                bad = [i for i, good in enumerate(self._arrays.finite(gradients)) if not good]
                self._fault(
                    "gradients",
                    f"step {step}: {len(bad)} of {len(gradients)} gradients are not finite: "
                    f"{self._names(self._order[i] for i in bad)}",
                    self._why_gradients(loss, gradients),
                    "with float16, a loss scaler, and skip the step where "
                    "ms.amp.all_finite(grads) is false; otherwise keep arguments of sqrt, log and "
                    "division away from 0",
                )
            return
        if skipped:
            return
        zero = self._zero = self._arrays.zero(gradients, squares)
        self._had = [had or not z for had, z in zip(self._had, zero, strict=True)]
        self._tick("zero gradients")
        without = self._names(p for p, had in zip(self._order, self._had, strict=True) if not had)
        self._notes["zero gradients"] = f"none so far for {without}" if without else ""
        if all(zero) and loss != 0:
            found, remedy = self._why_zero(gradients)
            self._fault(
                "zero gradients",
                f"step {step}: all {len(zero)} gradients are zero "
                f"({self._names(self._order)}), and the loss is {loss:.4g}",
                found,
                remedy,
            )
        norm = math.sqrt(float(squares.sum(dtype="float64")))
        self._tick("norm")
        usual = median(self._norms) if len(self._norms) >= 5 else None
        too_high = self._max_norm is not None and norm > self._max_norm
        exploded = usual is not None and usual > 0 and norm > self._explosion * usual
        if too_high or exploded:
            worst = self._order[int(squares.argmax())].name
            against = (
                f"the limit is {self._max_norm:g}"
                if too_high
                else f"{norm / (usual or 1):.0f} times the median of the last {len(self._norms)} "
                "steps"
            )
            self._fault(
                "norm",
                f"step {step}: the gradient norm is {norm:.4g}, {against}; the largest part is "
                f"{worst}'s",
                "the learning rate is too high, or this batch has an outlier",
                "a lower learning rate, a warm-up, or grads = ops.clip_by_global_norm(grads, 1.0)",
                norm=norm,
            )
        elif norm > 0:
            self._norms.append(norm)

    def _judge_finite_weights(self, finite: bool, skipped: bool) -> None:
        self._tick("weights")
        good = self._arrays.finite(self._watched)
        bad = [p for p, fine in zip(self._watched, good, strict=True) if not fine]
        if bad:
            self._fault(
                "weights",
                f"step {self._number}: {len(bad)} of {len(self._watched)} parameters are not "
                f"finite: {self._names(bad)}",
                "the optimizer was given gradients that are not finite"
                if not finite and not skipped
                else "the gradients are finite: the optimizer's own division (eps 0, or too small "
                "for float16), an infinite learning rate, or something else wrote them",
                "load the last checkpoint; ms.amp.all_finite(grads) before optimizer(grads)",
            )

    def _judge_movement(
        self,
        moved: list[bool],
        still: bool,
        called: bool,
        gradients: list[Any] | None,
        squares: Array | None,
    ) -> None:
        self._tick("movement")
        has = None if squares is None or gradients is None else self._by_parameter(gradients)
        if has is not None and all(self._zero):
            return self._judge_foreign(moved, has)  # all zero: that is the fault, not this
        rates = self._rates()
        if still:
            self._judge_stillness(called, has, rates)
            return None
        self._idle = self._zero_rate = 0
        self._moved_once = True
        if has is not None:
            self._judge_foreign(moved, has)
            self._judge_descent(has)
            stuck = [
                p
                for p, zero in zip(self._held, self._zero)  # noqa: B905
                if not moved[self._index[id(p)]]
                and not zero
                and self._should_move(p, has[id(p)], rates[id(p)])
            ]
            if stuck:
                self._fault(
                    "movement",
                    f"step {self._number}: {self._names(stuck)} did not move, others did, and the "
                    "gradient is not zero",
                    *_CUT_OFF,
                )
        return None

    def _judge_stillness(
        self, called: bool, has: dict[int, Any] | None, rates: dict[int, float | None]
    ) -> None:
        step, name = self._number, type(self._optimizer).__name__
        if not called and self._counts:
            self._idle += 1
            if self._idle >= self._accumulate:
                self._fault(
                    "movement",
                    f"step {step}: no parameter moved ({self._names(self._held)})",
                    f"the optimizer was not called: its global_step stayed at {self._calls()}",
                    "optimizer(grads) in each step, before guard.step; where gradients are "
                    "accumulated, StepGuard(..., accumulate=N)",
                )
            return
        if all(rate == 0 for rate in rates.values()):
            self._zero_rate += 1
            if self._zero_rate >= self._constant:
                self._fault(
                    "movement",
                    f"step {step}: the learning rate is 0, {self._zero_rate} steps in a row",
                    "the schedule has ended, counts epochs where steps are meant, or was made for "
                    "another number of steps",
                    "look at optimizer.get_lr(), and draw the schedule over the steps",
                )
            return
        self._zero_rate = 0
        self._idle += 1
        if self._idle < self._accumulate:
            return
        if has is not None:
            should = [
                p
                for p in self._held
                if id(p) in has and self._should_move(p, has[id(p)], rates[id(p)])
            ]
            if not should:
                self._tiny += 1
                self._notes["movement"] = f"{self._tiny} updates below the weights' resolution"
                return
        module = type(self._optimizer).__module__
        if module.startswith("mindspore.mint"):
            found = (
                f"mint.optim.{name} returns without an error and changes nothing on this device "
                "(in PyNative mode on a CPU)"
            )
            remedy = "nn.SGD, nn.Momentum, nn.Adam or mindspore.experimental.optim instead"
        elif called or self._moved_once:
            found, remedy = _CUT_OFF
        else:
            found = "the optimizer was not called, or another one than the guard's was"
            remedy = (
                "optimizer(grads) in each step, before guard.step; where gradients are "
                "accumulated, StepGuard(..., accumulate=N)"
            )
        self._fault(
            "movement",
            f"step {step}: no parameter moved ({self._names(self._held)}), and the gradients are "
            "not zero",
            found,
            remedy,
        )

    def _judge_foreign(self, moved: list[bool], has: dict[int, Any]) -> None:
        self._tick("foreign movement")
        held = {id(parameter): i for i, parameter in enumerate(self._held)}
        had = {id(p): seen for p, seen in zip(self._order, self._had, strict=True)}
        for index, parameter in enumerate(self._watched):
            key = id(parameter)
            if not moved[index]:
                continue
            if key not in held:
                if not parameter.requires_grad:
                    continue  # BatchNorm's statistics, a moving average of the weights
                found = "another optimizer, or your own code, writes it: this optimizer lacks it"
            elif not parameter.requires_grad:
                found = (
                    "it was frozen after the optimizer was made, whose weight decay or momentum "
                    "still moves it"
                )
            elif key not in has or had.get(key, True):
                continue  # momentum and moments go on after a gradient
            elif self._decays(held[key]) and self._shrank(index):
                continue
            else:
                found = "something else than the optimizer writes it, or its gradient is cut off"
            frozen = not parameter.requires_grad
            self._fault(
                "foreign movement",
                f"step {self._number}: {parameter.name} moved without a gradient",
                found,
                "freeze first, then make the optimizer from net.trainable_params()"
                if frozen
                else "look for set_data, assign and load_param_into_net inside the loop, and for a "
                "second optimizer",
            )
            return

    def _judge_descent(self, has: dict[int, Any]) -> None:
        if not self._first_move:
            return
        self._first_move = False
        self._tick("descent")
        along = step = slope = 0.0
        for parameter in self._held:
            if id(parameter) not in has:
                continue
            delta = _flat(parameter) - self._past(self._index[id(parameter)])
            gradient = _flat(has[id(parameter)])
            along += float(delta @ gradient)
            step += float(delta @ delta)
            slope += float(gradient @ gradient)
        if step > 0 and slope > 0 and along > 0.5 * math.sqrt(step) * math.sqrt(slope):
            self._fault(
                "descent",
                f"step {self._number}: the first step goes uphill: its cosine with the gradient is "
                f"{along / math.sqrt(step) / math.sqrt(slope):+.3f}, where -1 is downhill",
                "the gradients or the learning rate have the wrong sign",
                "optimizer(grads) with the gradients of what is to be minimised; maximize=False",
            )

    def _judge_repetition(self, loss: float, squares: Array | None, skipped: bool) -> None:
        if skipped or self._zero_rate:
            return
        self._tick("constant")
        same, times = self._last
        times = times + 1 if loss == same else 1
        self._last = (loss, times)
        zero = squares is not None and not squares.any()
        if times >= self._constant and not (zero and loss == 0):
            self._fault(
                "constant",
                f"step {self._number}: the loss is {loss:.6g} for the {times}th time in a row",
                'ms.jit(capture_mode="trace") freezes the first call; the weights do not move; the '
                "net is dead (all ReLUs at 0); or a constant batch is compiled in",
                "ms.jit without capture_mode; pass the batch as an argument; a lower learning rate",
            )
        if squares is None or zero:
            return
        self._tick("stale")
        before, times = self._last_squares
        equal = before is not None and bool((before == squares).all())
        times = times + 1 if equal else 1
        self._last_squares = (squares, times)
        if times >= self._constant:
            self._fault(
                "stale",
                f"step {self._number}: the gradients are the same for the {times}th time in a row, "
                f"beginning with {self._order[0].name}'s",
                "they are computed once, outside the loop, or a compiled function is frozen",
                "(loss, _), grads = grad_fn(x, y) inside the loop",
            )

    # Why

    def _why_loss(self, batch: Any) -> str:
        parts = batch if isinstance(batch, (tuple, list)) else [batch]
        for number, part in enumerate(parts):
            if hasattr(part, "shape") and not self._arrays.finite([part])[0]:
                return f"NaN or infinity in the batch: in its part {number}"
        if "weights" in self._faults:
            return "the weights are not finite: see there"
        if self._half():
            return (
                "float16 ends at 65504: activations or the loss overflow; or log(0), a division "
                "by 0, NaN in the batch"
            )
        if len(self._norms) >= 3 and self._norms[-1] > 10 * self._norms[0]:
            return (
                f"the learning rate is too high: the gradient norm grew from {self._norms[0]:.3g} "
                f"to {self._norms[-1]:.3g}"
            )
        return "log(0) or a division by 0 in the loss, NaN in the batch, a learning rate too high"

    def _why_gradients(self, loss: float, gradients: list[Any]) -> str:
        if not math.isfinite(loss):
            return "the loss is not finite: see there"
        if self._half() or any("16" in str(gradient.dtype) for gradient in gradients):
            return "float16 overflow in the backward pass (a loss scale too high), and no skip"
        return "the derivative at 0 of sqrt, log, a norm or a division; the loss itself is finite"

    def _why_zero(self, gradients: list[Any]) -> tuple[str, str]:
        foreign = self._faults.get("parameters")
        own = None if self._net is None else {id(p) for p in self._net.get_parameters()}
        if foreign is not None or (
            own is not None and not any(id(parameter) in own for parameter in self._order)
        ):
            return (
                "value_and_grad was given another net's parameters",
                "ms.value_and_grad(forward_fn, None, optimizer.parameters, has_aux=True), with the "
                "optimizer made from this net",
            )
        if not any(parameter.requires_grad for parameter in self._order):
            return ("all parameters are frozen", "parameter.requires_grad = True")
        if any(self._had):
            return (
                "the net is dead (all ReLUs at 0, softmax saturated), or float16 underflow",
                "a lower learning rate; with float16, a loss scaler",
            )
        half = "; or float16 underflow" if self._half() else ""
        return (
            "the loss is computed through NumPy (asnumpy), argmax or rounding, which cut the "
            "gradient; or value_and_grad was given another net's parameters" + half,
            "compute the loss with ops on the net's output; "
            "ms.value_and_grad(forward_fn, None, optimizer.parameters, has_aux=True)"
            + ("; a loss scaler" if half else ""),
        )

    def _half(self) -> bool:
        """Whether float16 or bfloat16 is computed anywhere in the net, as far as its cells say."""
        cells = () if self._net is None else (cell for _, cell in self._net.cells_and_names())
        return any("16" in str(parameter.dtype) for parameter in self._watched) or any(
            getattr(cell, flag, False) for cell in cells for flag in ("fp16", "bf16")
        )

    # The optimizer

    @property
    def _counts(self) -> bool:
        return hasattr(self._optimizer, "global_step")

    def _calls(self) -> int:
        """How often the optimizer was called; 0 where it does not count."""
        return int(_host(self._optimizer.global_step).ravel()[0]) if self._counts else 0

    def _group_rates(self) -> list[float]:
        groups = getattr(self._optimizer, "param_groups", None) or []
        return [float(_number("lr", group["lr"])) for group in groups]

    def _rates(self) -> dict[int, float | None]:
        """The learning rate of this step by parameter; None where it cannot be told."""
        if hasattr(self._optimizer, "param_groups"):
            # A scheduler may have stepped since: where either is 0, nothing needs to move.
            pairs = zip(self._rates_before, self._group_rates(), strict=True)
            rates = [min(pair) for pair in pairs]
            return {
                id(parameter): rate
                for rate, group in zip(rates, self._optimizer.param_groups, strict=True)
                for parameter in group["params"]
            }
        try:
            found = _rate(self._optimizer, 0)
        except (TypeError, ValueError, AttributeError):
            return dict.fromkeys(map(id, self._held))
        scale = float(getattr(self._optimizer, "loss_scale", 1.0))
        if not isinstance(found, list):
            found = [found] * len(self._held)
        if len(found) != len(self._held):
            return dict.fromkeys(map(id, self._held))
        return {id(p): rate / scale for p, rate in zip(self._held, found, strict=True)}

    def _should_move(self, parameter: Any, gradient: Any, rate: float | None) -> bool:
        """Whether the update is above the resolution of the weights, well above for Adam's kin."""
        import numpy as np

        if rate is None:
            return True
        if rate == 0:
            return False
        weight, slope = _flat(parameter), np.abs(_flat(gradient))
        if any(name in type(self._optimizer).__name__ for name in _ADAPTIVE):
            slope = 1e-3 * slope / (slope + 1e-6)
        resolution = np.spacing(np.abs(_host(parameter).ravel())).astype(np.float64)
        return bool((abs(rate) * slope > np.maximum(resolution, 1e-37)).any()) and weight.size > 0

    def _decays(self, index: int) -> bool:
        groups = getattr(self._optimizer, "param_groups", None)
        if groups is not None:
            key = id(self._held[index])
            return any(
                float(_number("weight_decay", group.get("weight_decay", 0.0))) > 0
                for group in groups
                if any(id(parameter) == key for parameter in group["params"])
            )
        decay = getattr(self._optimizer, "weight_decay", 0.0)
        if isinstance(decay, tuple):
            decay = decay[index]
        return callable(getattr(decay, "construct", None)) or float(_host(decay)) > 0

    def _shrank(self, index: int) -> bool:
        past = self._past(index)
        return bool(((_flat(self._watched[index]) - past) * past <= 0).all())

    # The gradient against the loss

    def _derivative(
        self,
        loss: float,
        gradients: list[Any],
        forward: Callable[[], Any],
        at: Mapping[int, Any],
    ) -> None:
        import numpy as np

        own = self._watched
        kept = [_host(parameter).copy() for parameter in own]
        points = [self._arrays.host(at[i]) if i in at else kept[i] for i in range(len(own))]
        place = {id(parameter): i for i, parameter in enumerate(own)}
        slopes = {
            place[id(p)]: _flat(g)
            for p, g in zip(self._order, gradients, strict=True)
            if id(p) in place
        }

        # What forward changes by itself, as BatchNorm's statistics, and what was moved last.
        stale = {i for i, parameter in enumerate(own) if not parameter.requires_grad}
        away = list(range(len(own)))

        def losses(direction: Mapping[int, Array], length: float) -> tuple[float, float]:
            """Loss, and the sum of the other outputs, ``length`` along ``direction``."""
            write = sorted({*away, *direction, *stale})
            away[:] = direction
            for i in write:
                point = value = points[i]
                if i in direction:
                    moved = point.astype(np.float64) + length * direction[i].reshape(point.shape)
                    value = moved.astype(point.dtype)
                _write(own[i], value)
            outputs = forward()
            rest = outputs[1:] if isinstance(outputs, (tuple, list)) else ()
            return float(_number("loss", _first(outputs))), sum(map(_total, rest))

        try:
            here = losses({}, 0.0)[0]
            again = losses({}, 0.0)[0]
            if not math.isfinite(here) or not math.isfinite(again):
                self._notes["derivative"] = "the loss is not finite"
                return
            if abs(here - again) > 1e-5 * abs(here):
                self._notes["derivative"] = (
                    f"the loss is random ({here:.6g}, then {again:.6g}): guard.verify(grad_fn, x, "
                    "y) switches Dropout off"
                )
                return
            if here == 0:
                self._notes["derivative"] = "the loss is 0"
                return
            if abs(here - loss) > 1e-2 * abs(here):
                self._notes["derivative"] = (
                    f"forward returns another loss, {here:.6g}, than the step's {loss:.6g}"
                )
                return
            self._tick("derivative")
            self._compare(here, slopes, losses)
        finally:
            for parameter, array in zip(own, kept, strict=True):
                _write(parameter, array)

    def _compare(
        self,
        here: float,
        slopes: Mapping[int, Array],
        losses: Callable[[Mapping[int, Array], float], tuple[float, float]],
    ) -> None:
        import numpy as np

        def ratios(
            direction: Mapping[int, Array], shares: Sequence[float] = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)
        ) -> tuple[list[float], list[float]]:
            """Measured over predicted change, of the loss, and of the loss plus the rest."""
            predicted = sum(float(part @ part) for part in direction.values())
            alone, with_rest = [], []
            for share in shares:
                length = share * abs(here) / predicted
                up, down = losses(direction, length), losses(direction, -length)
                change = 2 * length * predicted
                alone.append((up[0] - down[0]) / change)
                with_rest.append((up[0] + up[1] - down[0] - down[1]) / change)
                if abs(alone[-1] - 1) < 0.1:
                    break
            return alone, with_rest

        def right(found: Sequence[float]) -> bool:
            return any(abs(ratio - 1) < 0.1 for ratio in found)

        given = {i: slope for i, slope in slopes.items() if slope.any()}
        step = self._number
        if given:
            total = sum(float(slope @ slope) for slope in given.values())
            alone, with_rest = ratios(given)
            if not right(alone):
                ratio = alone[2]
                if right(with_rest):
                    return self._fault(
                        "derivative",
                        f"step {step}: the gradients are those of the loss plus the sum of the "
                        f"other outputs: along them the loss changes {ratio:.3g} times as fast as "
                        "they say, loss plus outputs as they say",
                        "has_aux=True was forgotten: forward returns (loss, logits), and "
                        "value_and_grad then differentiates the sum of both",
                        "ms.value_and_grad(forward_fn, None, optimizer.parameters, has_aux=True)",
                        ratio=ratio,
                    )
                large = [i for i, slope in given.items() if float(slope @ slope) > 1e-3 * total][
                    :50
                ]
                wrong = [i for i in large if not right(ratios({i: given[i]}, (1e-2, 1e-3))[0])]
                names = self._names(self._watched[i] for i in (wrong or large))
                return self._fault(
                    "derivative",
                    f"step {step}: the gradient is not the loss's: along it the loss changes "
                    f"{ratio:.3g} times as fast as it says; {names}",
                    self._why_ratio(ratio, len(wrong) == len(large)),
                    "optimizer and value_and_grad with the same parameters; "
                    "grads = scaler.unscale(grads); no asnumpy, argmax or stop_gradient on the way",
                    ratio=ratio,
                )
        random = np.random.default_rng(0)
        for i in [i for i in slopes if i not in given][:20]:
            point = _flat(self._watched[i])
            size = float(np.sqrt(np.mean(point**2))) or 1.0
            direction = {i: random.standard_normal(point.size) * size * 1e-2}
            change = max(abs(losses(direction, sign)[0] - here) for sign in (1.0, -1.0))
            if change > 1e-5 * abs(here):
                return self._fault(
                    "derivative",
                    f"step {step}: the gradient of {self._watched[i].name} is zero, but the loss "
                    f"depends on it: a change of 1 % moves the loss by {change:.3g}",
                    "the gradient is cut on the way: asnumpy, argmax, stop_gradient, or a frozen "
                    "parameter",
                    "compute with ops from the parameter to the loss",
                )
        return None

    @staticmethod
    def _why_ratio(ratio: float, everywhere: bool) -> str:
        if everywhere and ratio > 0:
            factor = 1 / ratio
            power = 2.0 ** round(math.log2(factor))
            factor = power if abs(factor / power - 1) < 0.03 else factor
            if factor > 1.5 and abs(factor - round(factor)) < 0.05 * factor:
                return (
                    f"the gradients are {factor:.5g} times too large: still multiplied by a loss "
                    "scale, or accumulated over batches and not divided"
                )
            if ratio > 1.5:
                return f"the gradients are {ratio:.4g} times too small: divided twice, or clipped"
        if everywhere and ratio < -0.9:
            return "the gradients have the wrong sign: those of -loss"
        return (
            "the gradients are other parameters', in another order, of another batch, or cut on "
            "part of the way"
        )

    # The state

    def _remember(self) -> None:
        """Copy what the next step is compared with, where the next step looks at the weights."""
        following = self._number + 1
        self._calls_before = self._calls()
        self._rates_before = self._group_rates()
        if following % self._every and following != 1:
            self._before: dict[int, Any] | None = None
            return
        compared = [
            i
            for i, p in enumerate(self._watched)
            if i < len(self._held) or p.requires_grad or "moving_" not in p.name
        ]
        copies = self._arrays.copy([self._watched[i] for i in compared])
        self._before = dict(zip(compared, copies, strict=True))
        if self._checkpoint is not None:
            from msnb.checkpoint import _collect

            self._snapshot = {
                name: parameter.value().copy()
                for name, parameter in _collect(self._net, self._optimizer).items()
            }
            self._snapshot_step = self._number

    def _save(self) -> Path | None:
        if self._checkpoint is None or self._snapshot is None:
            return None
        from msnb.checkpoint import _group_rates, _random_state
        from msnb.stored import write

        state = {
            "step": self._snapshot_step,
            "optimizer": type(self._optimizer).__name__,
            "rates": _group_rates(self._optimizer),
            "random": _random_state(),
        }
        write(self._checkpoint, self._snapshot, state)
        return self._checkpoint

    def _moved(self) -> list[bool]:
        assert self._before is not None
        now = [self._watched[i] for i in self._before]
        different = self._arrays.different(now, list(self._before.values()))
        moved = [False] * len(self._watched)
        for index, changed in zip(self._before, different, strict=True):
            moved[index] = changed
        return moved

    def _past(self, index: int) -> Array:
        import numpy as np

        assert self._before is not None
        past: Array = self._arrays.host(self._before[index]).ravel().astype(np.float64)
        return past

    def _by_parameter(self, gradients: list[Any]) -> dict[int, Any]:
        """Gradients by the parameter to which the optimizer applies them: by position."""
        return {id(p): gradient for p, gradient in zip(self._held, gradients)}  # noqa: B905

    def _as_list(self, grads: Any) -> list[Any]:
        if isinstance(grads, Mapping):
            missing = [p.name for p in self._order if p.name not in grads]
            if missing or len(grads) != len(self._order):
                raise ValueError(
                    f"grads has {len(grads)} names for {len(self._order)} parameters; "
                    f"missing: {', '.join(missing) or 'none'}"
                )
            grads = [grads[parameter.name] for parameter in self._order]
        if hasattr(grads, "shape"):
            grads = [grads]  # value_and_grad with one parameter
        if not isinstance(grads, (tuple, list)):
            raise TypeError(
                f"grads is a tuple of tensors, as value_and_grad returns it, not {_shown(grads)}"
            )
        grads = [_dense(part) if _sparse(part) else part for part in grads]
        if any(isinstance(part, (tuple, list)) for part in grads):
            raise TypeError(
                "grads is a tuple of tuples: with grad_position and weights, value_and_grad "
                "returns (of the inputs, of the weights); give grads[1]"
            )
        if len(grads) != len(self._order):
            raise ValueError(
                f"there are {len(grads)} gradients and {len(self._order)} parameters; give "
                "value_and_grad the optimizer's: optimizer.parameters"
            )
        for part, parameter in zip(grads, self._order, strict=True):
            if not hasattr(part, "shape"):
                raise TypeError(f"the gradient of {parameter.name} is a tensor, not {_shown(part)}")
        self._misfit = False
        for index, (part, p) in enumerate(zip(grads, self._order, strict=True)):
            if tuple(part.shape) != tuple(p.shape):
                self._misfit = True
                self._tick("order")
                self._fault(
                    "order",
                    f"step {self._number + 1}: gradient {index} has the shape "
                    f"{tuple(part.shape)}, {p.name} has {tuple(p.shape)}",
                    "the gradients are in another order than the optimizer's parameters",
                    "ms.value_and_grad(forward_fn, None, optimizer.parameters, has_aux=True)",
                )
                break
        return list(grads)

    def _tick(self, kind: str) -> None:
        self._judged[kind] = self._judged.get(kind, 0) + 1

    def _fault(self, kind: str, summary: str, found: str, remedy: str, **metrics: float) -> None:
        if kind in self._faults:
            return
        check = Check(
            kind, "failed", summary, found, _KINDS[kind], remedy, {"step": self._number, **metrics}
        )
        self._faults[kind] = check
        self._new.append(check)
        print(f"StepGuard: {summary}\n  likely cause: {found}\n  to do: {remedy}", flush=True)

    def _names(self, parameters: Iterable[Any]) -> str:
        names = [parameter.name for parameter in parameters]
        return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


class _Host:
    """Sums and comparisons by NumPy, on what asnumpy gives: on a CPU a view of the same memory."""

    @staticmethod
    def host(array: Any) -> Array:
        return _host(array)

    @staticmethod
    def copy(tensors: Sequence[Any]) -> list[Any]:
        return [_host(tensor).copy() for tensor in tensors]

    @staticmethod
    def squares(tensors: Sequence[Any]) -> Array:
        """The sum of squares of each tensor, float64; infinite or NaN where one does not fit."""
        import numpy as np

        sums = np.empty(len(tensors))
        with np.errstate(over="ignore", invalid="ignore"):
            for index, tensor in enumerate(tensors):
                array = _host(tensor)
                flat = array.ravel() if array.itemsize > 2 else array.ravel().astype(np.float32)
                sums[index] = np.dot(flat, flat)
        return sums

    @classmethod
    def finite(cls, tensors: Sequence[Any]) -> list[bool]:
        import numpy as np

        # One pass without a temporary array; only what looks odd is looked at element by element.
        return [
            bool(good) or bool(np.isfinite(_host(tensor)).all())
            for good, tensor in zip(np.isfinite(cls.squares(tensors)), tensors, strict=True)
        ]

    @staticmethod
    def zero(tensors: Sequence[Any], squares: Array) -> list[bool]:
        """A square may be 0 where its number is not."""
        return [
            square == 0 and not _host(tensor).any()
            for square, tensor in zip(squares.tolist(), tensors, strict=True)
        ]

    @staticmethod
    def different(now: Sequence[Any], before: Sequence[Any]) -> list[bool]:
        # As bytes: NaN equals itself, and -0.0 is not 0.0.
        return [
            _host(tensor).tobytes() != array.tobytes()
            for tensor, array in zip(now, before, strict=True)
        ]


class _Device:
    """The same with operators, so that sums alone are fetched from the device."""

    @staticmethod
    def host(array: Any) -> Array:
        return _host(array)

    @staticmethod
    def copy(tensors: Sequence[Any]) -> list[Any]:
        return [tensor.copy() for tensor in tensors]

    @staticmethod
    def squares(tensors: Sequence[Any]) -> Array:
        import mindspore as ms
        from mindspore import ops

        if not tensors:
            return _host([])
        return _host(
            ops.stack([ops.square(tensor.astype(ms.float32)).sum() for tensor in tensors])
        ).astype("float64")

    @staticmethod
    def finite(tensors: Sequence[Any]) -> list[bool]:
        from mindspore import ops

        if not tensors:
            return []
        whole = [ops.isfinite(tensor).all() for tensor in tensors]
        return [bool(good) for good in _host(ops.stack(whole))]

    @staticmethod
    def zero(tensors: Sequence[Any], squares: Array) -> list[bool]:
        return [
            square == 0 and not bool(_host((tensor != 0).any()))
            for square, tensor in zip(squares.tolist(), tensors, strict=True)
        ]

    @staticmethod
    def different(now: Sequence[Any], before: Sequence[Any]) -> list[bool]:
        from mindspore import ops

        if not now:
            return []
        changed = [(tensor != array).any() for tensor, array in zip(now, before, strict=True)]
        return [bool(change) for change in _host(ops.stack(changed))]


def _arrays() -> Any:
    from mindspore import context

    return _Host if context.get_context("device_target") == "CPU" else _Device


@cache
def _as_callback(cls: Any) -> Any:
    from mindspore.train import Callback

    if issubclass(cls, Callback):
        return cls
    return type(cls.__name__, (cls, Callback), {"__doc__": cls.__doc__, "__module__": __name__})


def _host(value: Any) -> Array:
    import numpy as np

    if not hasattr(value, "asnumpy"):
        return np.asarray(value)
    if "BFloat16" in str(value.dtype):  # NumPy has no such type
        value = value.float()
    array: Array = value.asnumpy()
    return array


def _flat(value: Any) -> Array:
    import numpy as np

    flat: Array = _host(value).ravel().astype(np.float64)
    return flat


def _isfinite(squares: Array) -> bool:
    return math.isfinite(float(squares.sum()))


def _write(parameter: Any, array: Array) -> None:
    from mindspore import Tensor, ops

    # Not set_data: after the optimizer's first step it cuts the parameter off from the optimizer.
    ops.assign(parameter, Tensor(array, parameter.dtype))


def _first(outputs: Any) -> Any:
    return outputs[0] if isinstance(outputs, (tuple, list)) else outputs


def _total(output: Any) -> float:
    """The sum of all numbers in an output of any structure: what MindSpore differentiates."""
    if isinstance(output, (tuple, list)):
        return sum(map(_total, output))
    kind = getattr(_host(output), "dtype", None)
    return float(_flat(output).sum()) if kind is not None and kind.kind == "f" else 0.0


def _sparse(gradient: Any) -> bool:
    """Whether it is a sparse gradient, of rows: from a compiled step (indices, values, shape)."""
    if not isinstance(gradient, (tuple, list)) or len(gradient) != 3:
        return False
    shape = gradient[2]
    return isinstance(shape, tuple) and all(isinstance(number, int) for number in shape)


def _dense(gradient: Any) -> Any:
    import mindspore
    import numpy as np

    indices, values, shape = gradient
    rows = _host(values)
    whole = np.zeros(shape, rows.dtype)
    np.add.at(whole, _host(indices), rows)
    return mindspore.Tensor(whole)


def _unique(parameters: Iterable[Any]) -> list[Any]:
    return list({id(parameter): parameter for parameter in parameters}.values())


def _modal_cells(net: Any) -> list[Any]:
    """The cells that compute something else in evaluation mode."""
    if net is None:
        return []
    return [
        cell
        for _, cell in net.cells_and_names()
        if any(word in type(cell).__name__ for word in ("Dropout", "BatchNorm"))
    ]


def _never(kind: str) -> str:
    if kind == "derivative":
        return "not asked for: StepGuard(net, optimizer, forward=forward_fn), or guard.verify"
    if kind in ("gradients", "zero gradients", "norm", "stale", "descent", "foreign movement"):
        return "no gradients were given to look at: guard.step(loss, grads)"
    return "no step was judged"


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"

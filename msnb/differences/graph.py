"""Code that ms.jit compiles or ms.export saves, against the same code in eager PyTorch.

MindSpore's side is the compiled one in every statement; the near neighbour is PyNative, or the
remedy compiled.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import nn, ops

from msnb.differences import Observation, Raised, attempt, difference

_NUMBERS = np.array([1.0, 2.0, 3.0], np.float32)


def _ours() -> Any:
    return ms.Tensor(_NUMBERS)


def _theirs() -> torch.Tensor:
    return torch.tensor(_NUMBERS)


def _jit(function: Any, x: Any) -> Any:
    """Compile and call; the result is there, or the error, when this returns."""
    result = ms.jit(function)(x)
    if isinstance(result, ms.Tensor):
        result.asnumpy()
    return result


def _exported(function: Any, x: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "graph")
        ms.export(function, x, file_name=path, file_format="MINDIR")
        return nn.GraphCell(ms.load(f"{path}.mindir"))(x)


# What is read from Python is read once


def _plus_random(x: Any) -> Any:
    return x + random.random()


def _plus_randn(x: Any) -> Any:
    return x + ops.randn(3)


def _two_calls_differ(run: Callable[[Any], Any], x: Any) -> bool:
    return bool((run(x) != run(x)).any())


@difference(
    "python-random",
    "A random number drawn by Python or NumPy in compiled code is drawn once, while compiling; "
    "every later call gets the same.",
    torch="x + random.random()",
    mindspore="ms.jit(lambda x: x + random.random())",
    expected="differs",
    remedy="x + ops.rand(1)",
)
def python_random() -> Observation:
    right = _two_calls_differ(_plus_random, _theirs())
    return Observation(
        torch=right,
        mindspore=_two_calls_differ(ms.jit(_plus_random), _ours()),
        claim=False,
        neighbour=(right, _two_calls_differ(ms.jit(_plus_randn), _ours())),
    )


_scale = 1.0


def _times_scale(x: Any) -> Any:
    return x * _scale


def _times(x: Any, scale: Any) -> Any:
    return x * scale


@difference(
    "global-number",
    "A global number that changes after the first compiled call keeps its first value.",
    torch="x * SCALE",
    mindspore="ms.jit(lambda x: x * SCALE)",
    expected="differs",
    remedy="ms.jit(lambda x, scale: x * scale)(x, ms.Tensor(SCALE))",
)
def global_number() -> Observation:
    global _scale

    def after_the_change(run: Callable[[Any], Any], x: Any) -> Any:
        global _scale
        _scale = 1.0
        run(x)
        _scale = 5.0
        return run(x)

    right = after_the_change(_times_scale, _theirs())
    compiled = ms.jit(_times)
    return Observation(
        torch=right,
        mindspore=after_the_change(ms.jit(_times_scale), _ours()),
        claim=_NUMBERS,
        neighbour=(
            right,
            after_the_change(lambda x: compiled(x, ms.Tensor(_scale, ms.float32)), _ours()),
        ),
    )


class _TorchDoubling(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x * 2 if self.training else x


class _Doubling(nn.Cell):  # type: ignore[misc]
    def construct(self, x: Any) -> Any:
        return x * 2 if self.training else x


_doubling = _Doubling()


def _through_the_net(x: Any) -> Any:
    return _doubling(x)


@difference(
    "training-flag",
    "In a compiled function around a net, `set_train` after the first call has no effect: dropout "
    "and batch normalisation stay in the mode of the first call.",
    torch="net.train(); step(x)",
    mindspore="net.set_train(); ms.jit(step)(x)",
    expected="differs",
    remedy="ms.jit(net)  # the net itself: its flag is looked at in each call",
)
def training_flag() -> Observation:
    def after_the_switch(set_mode: Callable[[bool], Any], run: Callable[[Any], Any], x: Any) -> Any:
        set_mode(False)
        run(x)
        set_mode(True)
        return run(x)

    net = _TorchDoubling()
    right = after_the_switch(net.train, net, _theirs())
    return Observation(
        torch=right,
        mindspore=after_the_switch(_doubling.set_train, ms.jit(_through_the_net), _ours()),
        claim=_NUMBERS,
        neighbour=(right, after_the_switch(_doubling.set_train, ms.jit(_doubling), _ours())),
    )


class _Scaling(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.scale = ms.Parameter(ms.Tensor([1.0]), name="scale")

    def construct(self, x: Any) -> Any:
        return x * self.scale


@difference(
    "weights-loaded-later",
    "`set_data` and `load_param_into_net` after the first call change the parameter, and not what "
    "`ms.jit` has compiled: it keeps computing with the old weights.",
    torch="net.load_state_dict(state); net(x)",
    mindspore="ms.load_param_into_net(net, state); compiled(x)",
    expected="differs",
    remedy="ops.assign(parameter, value)  # or load before the first call",
)
def weights_loaded_later() -> Observation:
    def after_loading(load: Callable[[Any, Any], Any]) -> Any:
        net = _Scaling()
        compiled = ms.jit(net)
        compiled(_ours()).asnumpy()
        load(net, ms.Tensor([5.0]))
        return compiled(_ours())

    def from_checkpoint(net: Any, value: Any) -> None:
        ms.load_param_into_net(net, {"scale": ms.Parameter(value, name="scale")})

    scale = torch.nn.Parameter(torch.tensor([1.0]))
    scale.data.copy_(torch.tensor([5.0]))
    right = (_theirs() * scale).detach()
    return Observation(
        torch=right,
        mindspore=after_loading(from_checkpoint),
        claim=_NUMBERS,
        neighbour=(right, after_loading(lambda net, value: ops.assign(net.scale, value))),
    )


# What is written to Python is lost


_seen: list[int] = []


def _noting(x: Any) -> Any:
    _seen.append(1)
    return x + 1


def _noted_by_two_calls(run: Callable[[Any], Any], x: Any) -> int:
    _seen.clear()
    for _ in range(2):
        run(x)
    return len(_seen)


@difference(
    "append-to-a-list",
    "What compiled code appends to a list outside is lost: the list stays empty.",
    torch="SEEN.append(1)",
    mindspore="ms.jit(function)  # with SEEN.append(1) inside",
    expected="differs",
    remedy="return x, hidden  # and let the caller append",
)
def append_to_a_list() -> Observation:
    right = _noted_by_two_calls(_noting, _theirs())
    return Observation(
        torch=right,
        mindspore=_noted_by_two_calls(ms.jit(_noting), _ours()),
        claim=0,
        neighbour=(right, _noted_by_two_calls(_noting, _ours())),
    )


class _Hooked(nn.Cell):  # type: ignore[misc]
    def __init__(self, hook: Any) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.relu.register_forward_hook(hook)

    def construct(self, x: Any) -> Any:
        return self.relu(x)


def _noting_hook(cell: Any, inputs: Any, output: Any) -> None:
    _seen.append(1)


def _doubling_hook(cell: Any, inputs: Any, output: Any) -> Any:
    return output * 2


@difference(
    "hook-that-notes",
    "A forward hook of an inner layer is compiled in, but what it notes in Python is lost.",
    torch="layer.register_forward_hook(hook)",
    mindspore="layer.register_forward_hook(hook); ms.jit(net)",
    expected="differs",
    remedy="return hidden  # as one more output",
)
def hook_that_notes() -> Observation:
    net = torch.nn.Sequential(torch.nn.ReLU())
    net[0].register_forward_hook(_noting_hook)
    right = _noted_by_two_calls(net, _theirs())
    return Observation(
        torch=right,
        mindspore=_noted_by_two_calls(ms.jit(_Hooked(_noting_hook)), _ours()),
        claim=0,
        neighbour=(right, _noted_by_two_calls(_Hooked(_noting_hook), _ours())),
    )


@difference(
    "hook-on-the-outside",
    "A forward hook on the cell that is compiled itself is not called.",
    torch="net.register_forward_hook(doubling)",
    mindspore="net.register_forward_hook(doubling); ms.jit(net)",
    expected="differs",
    remedy="net.relu.register_forward_hook(doubling)  # on an inner layer",
)
def hook_on_the_outside() -> Observation:
    theirs, ours = torch.nn.ReLU(), nn.ReLU()
    theirs.register_forward_hook(_doubling_hook)
    ours.register_forward_hook(_doubling_hook)
    right = theirs(_theirs())
    return Observation(
        torch=right,
        mindspore=_jit(ours, _ours()),
        claim=_NUMBERS,
        neighbour=(right, _jit(_Hooked(_doubling_hook), _ours())),
    )


# Two names for one tensor


def _second_name(x: Any) -> Any:
    y = x * 2
    z = y
    z[0] = 9
    return y


def _view(x: Any) -> Any:
    y = x * 2
    z = y[:1]
    z[0] = 9
    return y


def _first_name(x: Any) -> Any:
    y = x * 2
    y[0] = 9
    return y


@difference(
    "second-name",
    "Compiled, `z = y; z[0] = 9` leaves `y` as it was.",
    torch="z = y; z[0] = 9; return y",
    mindspore="ms.jit(function)  # z = y; z[0] = 9; return y",
    expected="differs",
    remedy="y[0] = 9; return y",
)
def second_name() -> Observation:
    right = _second_name(_theirs())
    return Observation(
        torch=right,
        mindspore=_jit(_second_name, _ours()),
        claim=2 * _NUMBERS,
        neighbour=(right, _jit(_first_name, _ours())),
    )


@difference(
    "view",
    "Compiled, a view is a tensor of its own: writing to it does not reach its base.",
    torch="z = y[:1]; z[0] = 9; return y",
    mindspore="ms.jit(function)  # z = y[:1]; z[0] = 9; return y",
    expected="differs",
    remedy="y[:1] = 9; return y",
)
def view() -> Observation:
    right = _view(_theirs())
    return Observation(
        torch=right,
        mindspore=_jit(_view, _ours()),
        claim=2 * _NUMBERS,
        neighbour=(right, _view(_ours())),
    )


def _assign_first(x: Any) -> Any:
    x[0] = 9
    return x * 2


def _plus_zero(x: Any) -> Any:
    y = x + 0
    y += 1
    return y


def _copied(x: Any) -> Any:
    y = x.copy()
    y += 1
    return y


def _argument_after(run: Callable[[Any], Any], x: Any) -> Any:
    run(x)
    return x


@difference(
    "assigned-argument",
    "Compiled, `x[0] = 9` on an argument does not change the caller's tensor.",
    torch="x[0] = 9",
    mindspore="ms.jit(function)  # with x[0] = 9 inside",
    expected="differs",
    remedy="x = changed(x)  # return it",
)
def assigned_argument() -> Observation:
    right = _argument_after(_assign_first, _theirs())
    return Observation(
        torch=right,
        mindspore=_argument_after(ms.jit(_assign_first), _ours()),
        claim=_NUMBERS,
        neighbour=(right, _argument_after(_assign_first, _ours())),
    )


@difference(
    "plus-zero",
    "Compiled, `y = x + 0` is no copy: `y += 1` after it changes the caller's x.",
    torch="y = x + 0; y += 1",
    mindspore="ms.jit(function)  # y = x + 0; y += 1",
    expected="differs",
    remedy="y = x.copy(); y += 1",
    since="2.8",
    before="`y = x + 0` is a copy, and the caller's x stays.",
)
def plus_zero() -> Observation:
    right = _argument_after(_plus_zero, _theirs())
    return Observation(
        torch=right,
        mindspore=_argument_after(ms.jit(_plus_zero), _ours()),
        claim=_NUMBERS + 1,
        neighbour=(right, _argument_after(ms.jit(_copied), _ours())),
    )


# Gradients and training


def _through_numpy(x: Any) -> Any:
    return (ms.Tensor(x.asnumpy()) * x).sum()


@difference(
    "gradient-through-numpy",
    "Compiled, one factor that went through NumPy makes the whole gradient zero; PyTorch refuses "
    "`x.numpy()` while it differentiates.",
    torch="(torch.tensor(x.numpy()) * x).sum().backward()",
    mindspore="ms.jit(ms.grad(lambda x: (ms.Tensor(x.asnumpy()) * x).sum()))(x)",
    expected="accepts",
    remedy="(ops.stop_gradient(x) * x).sum()",
)
def gradient_through_numpy() -> Observation:
    def torch_gradient(constant: Callable[[Any], Any]) -> Any:
        x = _theirs().requires_grad_()
        (constant(x) * x).sum().backward()
        return x.grad

    return Observation(
        torch=attempt(torch_gradient, lambda x: torch.tensor(x.numpy())),
        mindspore=_jit(ms.grad(_through_numpy), _ours()),
        claim=0 * _NUMBERS,
        neighbour=(torch_gradient(lambda x: x.detach()), ms.grad(_through_numpy)(_ours())),
    )


def _still_training(capture_mode: str) -> bool:
    """Whether a second call of a compiled SGD step still moves the weight."""
    net = nn.Dense(3, 1, weight_init="ones", has_bias=False)
    optimizer = nn.SGD(net.trainable_params(), 0.1)

    def loss(x: Any) -> Any:
        return net(x).sum()

    gradient = ms.value_and_grad(loss, None, optimizer.parameters)

    def step(x: Any) -> Any:
        value, grads = gradient(x)
        optimizer(grads)
        return value

    compiled = ms.jit(step, capture_mode=capture_mode)
    x = ms.Tensor(_NUMBERS[None])
    compiled(x).asnumpy()
    before = net.weight.asnumpy().copy()
    compiled(x).asnumpy()
    return bool((net.weight.asnumpy() != before).any())


@difference(
    "capture-trace",
    'A training step compiled with `capture_mode="trace"` stops training after its first call.',
    torch="optimizer.step()",
    mindspore='ms.jit(step, capture_mode="trace")',
    expected="differs",
    remedy="ms.jit(step)",
    isolated=True,
)
def capture_trace() -> Observation:
    layer = torch.nn.Linear(3, 1, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    before = layer.weight.detach().clone()
    layer(_theirs()[None]).sum().backward()
    optimizer.step()
    right = bool((layer.weight != before).any())
    # A thread of its own: trace reads the source of all callers, and raises where one has none.
    with ThreadPoolExecutor(1) as pool:
        traced = pool.submit(_still_training, "trace").result()
    return Observation(
        torch=right,
        mindspore=traced,
        claim=False,
        neighbour=(right, _still_training("ast")),
    )


# What Python still executes


def _plus_one(x: Any) -> Any:
    return x + 1


def _lines_executed(run: Callable[[Any], Any], x: Any) -> int:
    count = 0

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return local

    def tracer(frame: FrameType, event: str, argument: Any) -> Any:
        return local if frame.f_code is _plus_one.__code__ else None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        run(x)
        run(x)
    finally:
        sys.settrace(before)
    return count


@difference(
    "lines-executed",
    "Python never executes the lines of a compiled function, not even while compiling: a "
    "breakpoint there never stops.",
    torch="function(x)",
    mindspore="ms.jit(function)(x)",
    expected="differs",
    remedy="function(x)  # in PyNative, to debug it",
)
def lines_executed() -> Observation:
    right = _lines_executed(_plus_one, _theirs())
    return Observation(
        torch=right,
        mindspore=_lines_executed(ms.jit(_plus_one), _ours()),
        claim=0,
        neighbour=(right, _lines_executed(_plus_one, _ours())),
    )


# What does not compile


def _with_try(x: Any) -> Any:
    try:
        return x + 1
    except ValueError:
        return x


def _without_try(x: Any) -> Any:
    return x + 1


@difference(
    "try-except",
    "`try` does not compile.",
    torch="try: ...",
    mindspore="ms.jit(function)  # with try inside",
    expected="raises",
    remedy='ms.jit(function, capture_mode="bytecode")  # or test before',
)
def try_except() -> Observation:
    right = _with_try(_theirs())
    return Observation(
        torch=right,
        mindspore=attempt(_jit, _with_try, _ours()),
        claim=Raised("RuntimeError", "Unsupported statement 'Try'"),
        neighbour=(right, _jit(_without_try, _ours())),
    )


@difference(
    "mode-ignored",
    '`ms.jit(mode="PIJit")`, a spelling of old articles, is accepted and ignored: the source is '
    "parsed as always.",
    torch="try: ...",
    mindspore='ms.jit(function, mode="PIJit")  # with try inside',
    expected="raises",
    remedy='ms.jit(function, capture_mode="bytecode")',
)
def mode_ignored() -> Observation:
    right = _with_try(_theirs())
    old: Any = ms.jit(_with_try, mode="PIJit")
    return Observation(
        torch=right,
        mindspore=attempt(old, _ours()),
        claim=Raised("RuntimeError", "Unsupported statement 'Try'"),
        neighbour=(right, ms.jit(_with_try, capture_mode="bytecode")(_ours())),
    )


def _pieces(x: Any) -> Any:
    yield x
    yield x + 1


def _generator(x: Any) -> Any:
    return sum(_pieces(x))


def _list_of_pieces(x: Any) -> Any:
    return sum([x, x + 1])


@difference(
    "generator",
    "A generator function does not compile.",
    torch="sum(pieces(x))  # with yield in pieces",
    mindspore="ms.jit(function)  # with a generator inside",
    expected="raises",
    remedy="sum([x, x + 1])",
)
def generator() -> Observation:
    right = _generator(_theirs())
    return Observation(
        torch=right,
        mindspore=attempt(_jit, _generator, _ours()),
        claim=Raised("RuntimeError", "Unsupported expression 'Yield'"),
        neighbour=(right, _jit(_list_of_pieces, _ours())),
    )


def _pop(x: Any) -> Any:
    values = [x, x + 1]
    return values.pop() + values[0]


def _index(x: Any) -> Any:
    values = [x, x + 1]
    return values[-1] + values[0]


@difference(
    "list-pop",
    "`list.pop` does not compile, and the message speaks of a closure.",
    torch="values.pop()",
    mindspore="ms.jit(function)  # with values.pop() inside",
    expected="raises",
    remedy="values[-1]",
)
def list_pop() -> Observation:
    right = _pop(_theirs())
    return Observation(
        torch=right,
        mindspore=attempt(_jit, _pop, _ours()),
        claim=Raised("RuntimeError", "The Map operator don't support Closure"),
        neighbour=(right, _jit(_index, _ours())),
    )


def _torch_grows(x: Any) -> Any:
    while x.sum() < 20:
        x = torch.cat((x, x))
    return x


def _grows(x: Any) -> Any:
    while x.sum() < 20:
        x = ops.cat((x, x))
    return x


def _times_to_twenty(x: Any) -> Any:
    times = 1
    while x.sum() * times < 20:
        times = times * 2
    return times


@difference(
    "growing-in-a-loop",
    "A tensor that grows in a loop whose end only the data knows does not compile; the message "
    "speaks of negative shapes.",
    torch="while x.sum() < 20: x = torch.cat((x, x))",
    mindspore="ms.jit(function)  # while x.sum() < 20: x = ops.cat((x, x))",
    expected="raises",
    remedy="ops.tile(x, (int(times(x)),))  # count the rounds, build outside",
)
def growing_in_a_loop() -> Observation:
    right = _torch_grows(_theirs())
    times = int(_jit(_times_to_twenty, _ours()))
    return Observation(
        torch=right,
        mindspore=attempt(_jit, _grows, _ours()),
        claim=Raised("ValueError", "Shape should not have values less than -2"),
        neighbour=(right, ops.tile(_ours(), (times,))),
    )


def _torch_half_in_one_branch(x: Any) -> Any:
    return x.half() if x.sum() > 3 else x


def _half_in_one_branch(x: Any) -> Any:
    return x.astype(ms.float16) if x.sum() > 3 else x


def _shorter_in_one_branch(x: Any) -> Any:
    return x[:2] if x.sum() > 3 else x


@difference(
    "branches-of-other-dtype",
    "Branches on a tensor's value must return the same dtype; their shapes may differ.",
    torch="x.half() if x.sum() > 3 else x",
    mindspore="ms.jit(lambda x: x.astype(ms.float16) if x.sum() > 3 else x)",
    expected="raises",
    remedy="x.astype(ms.float16).astype(ms.float32) if x.sum() > 3 else x",
)
def branches_of_other_dtype() -> Observation:
    return Observation(
        torch=_torch_half_in_one_branch(_theirs()),
        mindspore=attempt(_jit, _half_in_one_branch, _ours()),
        claim=Raised("TypeError", "Cannot join the return values of different branches"),
        neighbour=(_shorter_in_one_branch(_theirs()), _jit(_shorter_in_one_branch, _ours())),
    )


class _NotSelf(nn.Cell):  # type: ignore[misc]
    def construct(this, x: Any) -> Any:
        return x + 1


class _TorchNotSelf(torch.nn.Module):  # type: ignore[misc]
    def forward(this, x: Any) -> Any:
        return x + 1


@difference(
    "not-self",
    "The first parameter of `construct` must be called `self` to compile; the message counts "
    "parameters.",
    torch="def forward(this, x): ...",
    mindspore="def construct(this, x): ...",
    expected="raises",
    remedy="def construct(self, x): ...",
)
def not_self() -> Observation:
    right = _TorchNotSelf()(_theirs())
    return Observation(
        torch=right,
        mindspore=attempt(_jit, _NotSelf(), _ours()),
        claim=Raised("TypeError", "The parameters number of the function is 2"),
        neighbour=(right, _NotSelf()(_ours())),
    )


# What cannot be exported


def _plus_one_in_numpy(x: Any) -> Any:
    return ms.Tensor(np.add(x.asnumpy(), np.float32(1)))


@difference(
    "export-numpy",
    "What compiles by falling back to Python, such as `asnumpy`, cannot be exported: export is "
    "strict.",
    torch="torch.tensor(x.numpy() + 1)",
    mindspore='ms.export(function, x, file_name="f", file_format="MINDIR")  # with x.asnumpy()',
    expected="raises",
    remedy="ops.add(x, 1)",
)
def export_numpy() -> Observation:
    right = torch.tensor(_theirs().numpy() + 1)
    return Observation(
        torch=right,
        mindspore=attempt(_exported, _plus_one_in_numpy, _ours()),
        claim=Raised("AttributeError", "In JIT strict mode, cannot get attributes asnumpy"),
        neighbour=(right, _jit(_plus_one_in_numpy, _ours())),
    )


def _dict(x: Any) -> Any:
    return {"scores": x + 1}


@difference(
    "export-dict",
    "An exported function that returns a dict gives a tuple of the values, without the names.",
    torch='return {"scores": x}',
    mindspore='ms.export(function, x, file_name="f", file_format="MINDIR")',
    expected="differs",
    remedy='{"scores": exported(x)[0]}  # put the names on outside',
)
def export_dict() -> Observation:
    right = _dict(_theirs())
    return Observation(
        torch=right,
        mindspore=_exported(_dict, _ours()),
        claim=(_NUMBERS + 1,),
        neighbour=(right, _jit(_dict, _ours())),
    )


class _Counter(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def construct(self, x: Any) -> Any:
        self.count = self.count + 1
        return x + self.count


@difference(
    "export-attribute",
    "A cell that writes a number to an attribute compiles, and cannot be exported.",
    torch="self.count = self.count + 1",
    mindspore='ms.export(net, x, file_name="f", file_format="MINDIR")',
    expected="raises",
    remedy='self.count = ms.Parameter(ms.Tensor(0.0), name="count")',
)
def export_attribute() -> Observation:
    right = _theirs() + 1
    return Observation(
        torch=right,
        mindspore=attempt(_exported, _Counter(), _ours()),
        claim=Raised("TypeError", "the member attribute must be of the Parameter type"),
        neighbour=(right, _jit(_Counter(), _ours())),
    )

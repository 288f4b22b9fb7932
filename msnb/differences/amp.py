"""Mixed precision: what the levels do to a net, loss scalers, bfloat16 and float16 on a CPU."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import amp, nn, ops

from msnb.differences import Observation, Raised, attempt, difference

IMAGE = np.array([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 1.0, 0.0]], np.float32)


@contextmanager
def _elsewhere() -> Iterator[str]:
    """A folder of its own to be in: O1 writes into the current one."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(here)


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.").lower()


def _torch_half(layer: Any) -> str:
    """The dtype of what a layer of PyTorch gives under autocast with float16."""
    with torch.amp.autocast("cpu", dtype=torch.float16):
        return _dtype(layer(torch.tensor(IMAGE).half()))


def _level(net: Any, level: str, dtype: Any = ms.float16) -> Any:
    return amp.auto_mixed_precision(net, level, dtype)


@difference(
    "changes-the-net",
    "`auto_mixed_precision` at O2 and O3 changes the net it is given: by its old name, the net now "
    "gives float16. PyTorch's autocast leaves the net alone.",
    torch='with torch.amp.autocast("cpu"): ...',
    mindspore='amp.auto_mixed_precision(net, "O2"); net(x)',
    expected="differs",
    remedy='net = amp.auto_mixed_precision(net, "O2")',
)
def changes_the_net() -> Observation:
    theirs, ours = torch.nn.Linear(4, 2), nn.Dense(4, 2)
    _torch_half(theirs)
    returned = _level(ours, "O2")
    after = _dtype(theirs(torch.tensor(IMAGE)))
    return Observation(
        torch=after,
        mindspore=_dtype(ours(ms.Tensor(IMAGE))),
        claim="float16",
        neighbour=(after, _dtype(returned(ms.Tensor(IMAGE)))),
    )


@difference(
    "o1-set-train",
    "After O1 of a `SequentialCell`, `set_train()` no longer reaches the layers that compute: "
    "BatchNorm and Dropout stay in evaluation mode.",
    torch="net.train()",
    mindspore='amp.auto_mixed_precision(net, "O1").set_train()',
    expected="differs",
    remedy="for layer in net.cell_list: layer.set_train()",
)
def o1_set_train() -> Observation:
    def ours(level: str) -> bool:
        net = _level(nn.SequentialCell(nn.Dense(4, 4), nn.BatchNorm1d(4)), level).set_train()
        inner = getattr(net, "_backbone", net)
        return all(bool(layer.training) for layer in inner.cell_list)

    theirs = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).train()[1].training
    with _elsewhere():
        return Observation(
            torch=theirs, mindspore=ours("O1"), claim=False, neighbour=(theirs, ours("O2"))
        )


@difference(
    "o1-writes-files",
    "O1 writes Python files into `rewritten_network` in the current folder.",
    torch='with torch.amp.autocast("cpu"): ...',
    mindspore='amp.auto_mixed_precision(net, "O1")',
    expected="differs",
    remedy="os.chdir(folder)  # to one that may hold them, before the call",
)
def o1_writes_files() -> Observation:
    def left(level: str) -> list[str]:
        with _elsewhere() as folder:
            _level(nn.SequentialCell(nn.Dense(4, 4)), level)
            return os.listdir(folder)

    with _elsewhere() as folder:
        _torch_half(torch.nn.Linear(4, 4))
        theirs = os.listdir(folder)
    return Observation(
        torch=theirs,
        mindspore=left("O1"),
        claim=["rewritten_network"],
        neighbour=(theirs, left("O2")),
    )


@difference(
    "o1-needs-source",
    "O1 reads the source of the net's class, so it refuses a class defined in a notebook cell or "
    "made while running.",
    torch='with torch.amp.autocast("cpu"): ...',
    mindspore='amp.auto_mixed_precision(net, "O1")',
    expected="raises",
    remedy="from my_module import Net  # a class in a file; or level O2",
)
def o1_needs_source() -> Observation:
    made = type("Made", (nn.Dense,), {})
    theirs = _torch_half(type("Made", (torch.nn.Linear,), {})(4, 2))
    with _elsewhere():
        return Observation(
            torch=theirs,
            mindspore=attempt(lambda: _dtype(_level(made(4, 2), "O1")(ms.Tensor(IMAGE)))),
            claim=Raised("OSError", "could not find class definition"),
            # the layer inside of the wrapper, which alone gives float16
            neighbour=(theirs, _dtype(_level(made(4, 2), "O2")._backbone(ms.Tensor(IMAGE)))),
        )


@difference(
    "norm-in-autocast",
    "LayerNorm gives float32 at O2; under PyTorch's autocast on a CPU it gives the 16-bit dtype "
    "that arrives.",
    torch='with torch.amp.autocast("cpu", dtype=torch.float16): norm(x)',
    mindspore='amp.auto_mixed_precision(net, "O2")  # norm inside',
    expected="differs",
)
def norm_in_autocast() -> Observation:
    net = _level(nn.SequentialCell(nn.Dense(4, 4), nn.LayerNorm((4,))), "O2")
    x = ms.Tensor(IMAGE.astype(np.float16))
    dense, norm = net._backbone.cell_list
    return Observation(
        torch=_torch_half(torch.nn.LayerNorm(4)),
        mindspore=_dtype(norm._backbone(x)),
        claim="float32",
        neighbour=(_torch_half(torch.nn.Linear(4, 4)), _dtype(dense(x))),
    )


def _torch_scales(start: float, bad_steps: int) -> float:
    scaler = torch.amp.GradScaler("cpu", init_scale=start)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(bad_steps):
        scaler.scale(weight * torch.inf).sum().backward()
        scaler.step(optimizer)
        scaler.update()
    return float(scaler.get_scale())


def _scales(start: float, bad_steps: int) -> float:
    scaler = amp.DynamicLossScaler(start, 2, 1000)
    for _ in range(bad_steps):
        scaler.adjust(ms.Tensor(False))
    return float(scaler.scale_value.item())


@difference(
    "scale-floor",
    "`DynamicLossScaler` does not fall below 1; PyTorch's GradScaler goes on halving.",
    torch="GradScaler(init_scale=4.0)  # five bad steps: 0.125",
    mindspore="amp.DynamicLossScaler(4.0, 2, 1000)  # five bad steps: 1.0",
    expected="differs",
)
def scale_floor() -> Observation:
    return Observation(
        torch=_torch_scales(4.0, 5),
        mindspore=_scales(4.0, 5),
        claim=max(1.0, 4.0 / 2**5),
        neighbour=(_torch_scales(4.0, 2), _scales(4.0, 2)),
    )


@difference(
    "scale-below-one",
    "A loss scaler refuses to begin below 1; PyTorch's does not.",
    torch="GradScaler(init_scale=0.5)",
    mindspore="amp.StaticLossScaler(0.5)",
    expected="raises",
    remedy="amp.StaticLossScaler(1)",
)
def scale_below_one() -> Observation:
    def theirs(start: float) -> float:
        return float(torch.amp.GradScaler("cpu", init_scale=start).scale(torch.ones(1)))

    def ours(start: float) -> Any:
        return amp.StaticLossScaler(start).scale(ms.Tensor([1.0])).item()

    return Observation(
        torch=theirs(0.5),
        mindspore=attempt(ours, 0.5),
        claim=Raised("ValueError", "The argument 'scale_value' must be > 1, but got 0.5"),
        neighbour=(theirs(1.0), ours(1.0)),
    )


@difference(
    "integer-factor",
    "The factor of `DynamicLossScaler` is a whole number, and one number for both ways; PyTorch "
    "has growth_factor and backoff_factor.",
    torch="GradScaler(growth_factor=1.5)",
    mindspore="amp.DynamicLossScaler(1024.0, 1.5, 1000)",
    expected="raises",
    remedy="amp.DynamicLossScaler(1024.0, 2, 1000)",
)
def integer_factor() -> Observation:
    def ours(factor: float) -> Any:
        return float(amp.DynamicLossScaler(1024.0, factor, 1000).scale_factor)

    return Observation(
        torch=torch.amp.GradScaler("cpu", growth_factor=1.5).get_growth_factor(),
        mindspore=attempt(ours, 1.5),
        claim=Raised("TypeError", "The 'scale_factor' must be int, but got 'float'"),
        neighbour=(torch.amp.GradScaler("cpu").get_growth_factor(), ours(2)),
    )


@difference(
    "skip-is-yours",
    "A loss scaler of MindSpore skips no step: infinite gradients reach the weights unless you ask "
    "`all_finite` yourself. PyTorch's `scaler.step` asks.",
    torch="scaler.step(optimizer)",
    mindspore="optimizer(scaler.unscale(grads))",
    expected="differs",
    remedy="if amp.all_finite(grads): optimizer(grads)",
)
def skip_is_yours() -> Observation:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    theirs = torch.nn.Parameter(torch.ones(2))
    torch_optimizer = torch.optim.SGD([theirs], lr=0.5)
    scaler.scale(theirs * torch.inf).sum().backward()
    scaler.step(torch_optimizer)

    def ours(guarded: bool) -> Any:
        weight = ms.Parameter(ms.Tensor(np.ones(2, np.float32)), name="weight")
        optimizer = nn.SGD([weight], 0.5)
        infinite = ms.Tensor(np.full(2, np.inf, np.float32))
        grads = amp.StaticLossScaler(2.0).unscale((infinite,))
        if not guarded or amp.all_finite(grads):
            optimizer(grads)
        return weight.asnumpy()

    return Observation(
        torch=theirs.detach().numpy(),
        mindspore=ours(guarded=False),
        claim=np.float32(1) - np.float32(0.5) * np.full(2, np.inf, np.float32),
        neighbour=(theirs.detach().numpy(), ours(guarded=True)),
    )


@difference(
    "loss-scale-cell",
    "`nn.TrainOneStepWithLossScaleCell` does not run on a CPU: it reads the overflow register of "
    "an Ascend chip.",
    torch="scaler.scale(loss).backward(); scaler.step(optimizer)",
    mindspore="nn.TrainOneStepWithLossScaleCell(net, optimizer, scale)",
    expected="raises",
    remedy="amp.DynamicLossScaler and amp.all_finite in a loop of your own",
    isolated=True,
)
def loss_scale_cell() -> Observation:
    def net() -> Any:
        return nn.WithLossCell(nn.Dense(4, 2, weight_init="ones", bias_init="zeros"), nn.MSELoss())

    x, y = ms.Tensor(IMAGE), ms.Tensor(np.zeros((2, 2), np.float32))

    def scaled() -> Any:
        cell = net()
        optimizer = nn.SGD(cell.trainable_params(), 0.1)
        scale = ms.Tensor(1024.0, ms.float32)
        return nn.TrainOneStepWithLossScaleCell(cell, optimizer, scale)(x, y)[0].asnumpy()

    plain = net()
    one_step = nn.TrainOneStepCell(plain, nn.SGD(plain.trainable_params(), 0.1))
    theirs = (torch.tensor(IMAGE) @ torch.ones(4, 2)).square().mean()
    return Observation(
        torch=theirs,
        mindspore=attempt(scaled),
        claim=Raised("RuntimeError", "Kernel select failed"),
        neighbour=(theirs, one_step(x, y)),
    )


@difference(
    "model-o2",
    'On a CPU `Model(amp_level="O2")` refuses its own default, a dynamic loss scale.',
    torch='torch.amp.GradScaler("cpu")',
    mindspore='ms.Model(net, loss, optimizer, amp_level="O2")',
    expected="raises",
    remedy="ms.Model(..., loss_scale_manager=ms.FixedLossScaleManager(1024, False))",
)
def model_o2() -> Observation:
    def works(**scaling: Any) -> bool:
        net = nn.Dense(4, 2)
        optimizer = nn.SGD(net.trainable_params())
        return isinstance(
            ms.Model(net, nn.MSELoss(), optimizer, amp_level="O2", **scaling), ms.Model
        )

    theirs = bool(torch.amp.GradScaler("cpu").is_enabled())
    fixed = ms.FixedLossScaleManager(1024, drop_overflow_update=False)
    return Observation(
        torch=theirs,
        mindspore=attempt(works),
        claim=Raised("ValueError", "are supported on device `CPU`"),
        neighbour=(theirs, works(loss_scale_manager=fixed)),
    )


@difference(
    "bfloat16-matmul",
    "On a CPU MindSpore adds and multiplies bfloat16, and that is nearly all: matmul, relu, exp, "
    "sum and comparisons raise.",
    torch="x.bfloat16() @ y.bfloat16()",
    mindspore="ops.matmul(x.astype(ms.bfloat16), y.astype(ms.bfloat16))",
    expected="raises",
    remedy="ops.matmul(x.astype(ms.float16), y.astype(ms.float16))",
    isolated=True,
)
def bfloat16_matmul() -> Observation:
    def theirs(dtype: Any) -> Any:
        x = torch.tensor(IMAGE).to(dtype)
        return (x @ x.T).float()

    def ours(dtype: Any) -> Any:
        x = ms.Tensor(IMAGE).astype(dtype)
        return ops.matmul(x, x.T).astype(ms.float32).asnumpy()

    return Observation(
        torch=theirs(torch.bfloat16),
        mindspore=attempt(ours, ms.bfloat16),
        claim=Raised("TypeError", "Select CPU operator[MatMul] fail! Unsupported data type!"),
        neighbour=(theirs(torch.float16), ours(ms.float16)),
    )


@difference(
    "half-cumsum",
    "`ops.cumsum` adds float16 in float16: a long sum of small numbers stands still.",
    torch="torch.cumsum(x.half(), 0)",
    mindspore="ops.cumsum(x.astype(ms.float16), 0)",
    expected="off",
    remedy="ops.cumsum(x.astype(ms.float32), 0)",
)
def half_cumsum() -> Observation:
    x = np.full(16384, 0.1, np.float16)
    total = torch.cumsum(torch.tensor(x), 0)[-1].item()
    return Observation(
        torch=total,
        mindspore=ops.cumsum(ms.Tensor(x), 0)[-1].item(),
        claim=float(np.cumsum(x, dtype=np.float16)[-1]),
        right=float(x.astype(np.float64).sum()),
        neighbour=(total, ops.cumsum(ms.Tensor(x).astype(ms.float32), 0)[-1].item()),
    )


@difference(
    "half-norm",
    "`ops.norm` of float16 squares in float16: it is infinite where a square exceeds 65504.",
    torch="torch.linalg.norm(x.half())",
    mindspore="ops.norm(x.astype(ms.float16))",
    expected="off",
    remedy="ops.norm(x.astype(ms.float32))",
)
def half_norm() -> Observation:
    x = np.full(100, 300, np.float16)
    length = torch.linalg.norm(torch.tensor(x)).item()
    return Observation(
        torch=length,
        mindspore=ops.norm(ms.Tensor(x)).item(),
        claim=float("inf"),
        right=float(np.linalg.norm(x.astype(np.float64))),
        neighbour=(length, ops.norm(ms.Tensor(x).astype(ms.float32)).item()),
    )

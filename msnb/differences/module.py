"""Cells and modules: modes, what counts as a layer or a parameter, names, methods."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import nn, ops

from msnb.differences import Observation, Raised, attempt, difference

Array = np.ndarray[Any, Any]

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def names(net: Any) -> tuple[str, ...]:
    """The names of the parameters of either framework's net."""
    if isinstance(net, torch.nn.Module):
        return tuple(name for name, _ in net.named_parameters())
    return tuple(parameter.name for parameter in net.get_parameters())


class Torch(torch.nn.Module):  # type: ignore[misc]
    """A module with the attributes given."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)


class Cell(nn.Cell):  # type: ignore[misc]
    """A Cell with the attributes given."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)

    def construct(self, x: Any) -> Any:
        return x


class Called(nn.Cell):  # type: ignore[misc]
    """Its ``construct`` does not call its first argument self."""

    def construct(this, x: Any) -> Any:
        return x * 2


class CalledSelf(nn.Cell):  # type: ignore[misc]
    def construct(self, x: Any) -> Any:
        return x * 2


class Forward(nn.Cell):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x * 2


@difference(
    "training-is-off",
    "A new Cell is in evaluation mode: dropout and batch normalisation do nothing for training "
    "until `set_train()`.",
    torch="torch.nn.Linear(3, 2).training",
    mindspore="nn.Dense(3, 2).training",
    expected="differs",
    remedy="net.set_train()",
)
def training_is_off() -> Observation:
    theirs = torch.nn.Linear(3, 2).training
    return Observation(
        torch=theirs,
        mindspore=bool(nn.Dense(3, 2).training),
        claim=False,
        neighbour=(theirs, bool(nn.Dense(3, 2).set_train().training)),
    )


@difference(
    "dropout-sleeps",
    "Dropout in a new net passes everything on.",
    torch="torch.nn.Dropout(p=0.5)(x)",
    mindspore="nn.Dropout(p=0.5)(x)",
    expected="differs",
    remedy="nn.Dropout(p=0.5).set_train()(x)",
)
def dropout_sleeps() -> Observation:
    ones = np.ones((8, 64), np.float32)

    def values(out: Any) -> list[float]:
        return sorted(set(np.asarray(out).ravel().tolist()))

    theirs = values(torch.nn.Dropout(p=0.5)(torch.tensor(ones)))
    return Observation(
        torch=theirs,
        mindspore=values(nn.Dropout(p=0.5)(ms.Tensor(ones)).asnumpy()),
        claim=[1.0],
        neighbour=(theirs, values(nn.Dropout(p=0.5).set_train()(ms.Tensor(ones)).asnumpy())),
    )


@difference(
    "added-later-sleeps",
    "A layer added after `set_train()` is in evaluation mode: call it when the net is complete.",
    torch="net.train(); net.append(torch.nn.Dropout()); net[-1].training",
    mindspore="net.set_train(); net.append(nn.Dropout(p=0.5)); net[-1].training",
    expected="differs",
    remedy="net.append(nn.Dropout(p=0.5)); net.set_train()",
)
def added_later_sleeps() -> Observation:
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 3))
    theirs.train().append(torch.nn.Dropout())
    ours = nn.SequentialCell(nn.Dense(3, 3))
    ours.set_train()
    ours.append(nn.Dropout(p=0.5))
    return Observation(
        torch=theirs[-1].training,
        mindspore=bool(ours[-1].training),
        claim=False,
        neighbour=(theirs[0].training, bool(ours[0].training)),
    )


@difference(
    "layers-in-a-list",
    "Layers in a Python list, tuple or dict are no part of the Cell (nor of a Module): they are "
    "called, but never trained.",
    torch="self.layers = [torch.nn.Linear(3, 3)]",
    mindspore="self.layers = [nn.Dense(3, 3)]",
    expected="agrees",
    remedy="self.layers = nn.CellList([nn.Dense(3, 3)])",
)
def layers_in_a_list() -> Observation:
    theirs = names(Torch(layers=[torch.nn.Linear(3, 3)]))
    return Observation(
        torch=theirs,
        mindspore=names(Cell(layers=[nn.Dense(3, 3)])),
        claim=(),
        neighbour=(theirs, names(Cell(layers=nn.CellList([nn.Dense(3, 3)])))),
    )


@difference(
    "forward-is-construct",
    "The method is called `construct`: a `forward` is not found.",
    torch="def forward(self, x)",
    mindspore="def forward(self, x)",
    expected="raises",
    remedy="def construct(self, x)",
)
def forward_is_construct() -> Observation:
    reference = torch.tensor(X) * 2
    return Observation(
        torch=reference,
        mindspore=attempt(lambda: Forward()(ms.Tensor(X))),
        claim=Raised("AttributeError", "the method 'construct' is not defined"),
        neighbour=(reference, CalledSelf()(ms.Tensor(X))),
    )


@difference(
    "first-argument-is-self",
    "Compiled, the first argument of `construct` must be called `self`; PyNative takes any name.",
    torch="def forward(this, x)",
    mindspore="def construct(this, x)",
    expected="raises",
    remedy="def construct(self, x)",
    isolated=True,
)
def first_argument_is_self() -> Observation:
    import os
    import tempfile

    def compiled(net: Any) -> Any:
        def call(x: Any) -> Any:
            return net(x)

        return ms.jit(call)(ms.Tensor(X))

    reference = torch.tensor(X) * 2
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # a failed compilation leaves files where it runs
        try:
            seen = attempt(compiled, Called())
        finally:
            os.chdir(before)
    return Observation(
        torch=reference,
        mindspore=seen,
        claim=Raised("TypeError", "The parameters number of the function is 2"),
        neighbour=(reference, Called()(ms.Tensor(X))),
    )


@difference(
    "methods-that-are-missing",
    "A Cell has none of `parameters`, `named_parameters`, `modules`, `children`, `train`, `eval`, "
    "`zero_grad`, `half`.",
    torch="net.parameters(), net.modules(), net.train(), net.eval(), net.zero_grad()",
    mindspore="net.get_parameters(), net.cells(), net.set_train(), net.set_train(False)",
    expected="differs",
    remedy="net.get_parameters(), net.cells_and_names(), net.set_train(False)",
    since="2.10",
    before="a Cell has no `to` either.",
)
def methods_that_are_missing() -> Observation:
    def present(kind: type, methods: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in methods if hasattr(kind, name))

    gone = (
        "parameters",
        "named_parameters",
        "modules",
        "children",
        "train",
        "eval",
        "zero_grad",
        "half",
    )
    shared = ("to", "apply", "register_buffer", "state_dict", "load_state_dict")
    return Observation(
        torch=present(torch.nn.Module, gone),
        mindspore=present(nn.Cell, gone),
        claim=(),
        neighbour=(present(torch.nn.Module, shared), present(nn.Cell, shared)),
    )


@difference(
    "sequential-names",
    "SequentialCell names its layers by number, or by the keys of an OrderedDict, as PyTorch does.",
    torch="torch.nn.Sequential(Linear(3, 3), ReLU(), Linear(3, 1))",
    mindspore="nn.SequentialCell(nn.Dense(3, 3), nn.ReLU(), nn.Dense(3, 1))",
    expected="agrees",
)
def sequential_names() -> Observation:
    theirs = names(
        torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    )
    ours = names(nn.SequentialCell(nn.Dense(3, 3), nn.ReLU(), nn.Dense(3, 1)))
    keyed = (
        names(torch.nn.Sequential(OrderedDict(fc=torch.nn.Linear(3, 3)))),
        names(nn.SequentialCell(OrderedDict(fc=nn.Dense(3, 3)))),
    )
    return Observation(
        torch=(theirs, keyed[0]),
        mindspore=(ours, keyed[1]),
        neighbour=(
            names(torch.nn.Sequential(torch.nn.BatchNorm1d(3))),
            names(nn.SequentialCell(nn.BatchNorm1d(3))),
        ),
    )


@difference(
    "statistics-are-parameters",
    "The running statistics of BatchNorm are among `get_parameters()`; PyTorch keeps buffers apart "
    "from `parameters()`.",
    torch="bn.parameters()",
    mindspore="bn.get_parameters()",
    expected="differs",
    remedy="bn.trainable_params()",
)
def statistics_are_parameters() -> Observation:
    theirs, ours = torch.nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    return Observation(
        torch=len(list(theirs.parameters())),
        mindspore=len(list(ours.get_parameters())),
        claim=4,
        neighbour=(len(list(theirs.parameters())), len(ours.trainable_params())),
    )


@difference(
    "frozen-leaves-trainable",
    "`requires_grad = False` takes a parameter out of `trainable_params()`, which is what the "
    "optimizer is given; `get_parameters()` keeps it.",
    torch="[p for p in net.parameters() if p.requires_grad]",
    mindspore="net.trainable_params()",
    expected="agrees",
)
def frozen_leaves_trainable() -> Observation:
    theirs, ours = torch.nn.Linear(3, 2), nn.Dense(3, 2)
    theirs.weight.requires_grad = False
    ours.weight.requires_grad = False
    left = tuple(name for name, p in theirs.named_parameters() if p.requires_grad)
    return Observation(
        torch=left,
        mindspore=tuple(p.name for p in ours.trainable_params()),
        claim=("bias",),
        neighbour=(left, names(ours)),
    )


@difference(
    "two-layers-named-alike",
    "Two layers that are not within one Cell have the same parameter names; an optimizer refuses "
    "them.",
    torch="optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)",
    mindspore="nn.SGD([*a.trainable_params(), *b.trainable_params()], learning_rate=0.1)",
    expected="raises",
    remedy="nn.SGD(nn.CellList([a, b]).trainable_params(), learning_rate=0.1)",
)
def two_layers_named_alike() -> Observation:
    def count(wrap: bool) -> int:
        a, b = nn.Dense(3, 2), nn.Dense(3, 2)
        if wrap:
            nn.CellList([a, b])
        return len(nn.SGD([*a.trainable_params(), *b.trainable_params()], 0.1).parameters)

    theirs = [*torch.nn.Linear(3, 2).parameters(), *torch.nn.Linear(3, 2).parameters()]
    reference = len(torch.optim.SGD(theirs, lr=0.1).param_groups[0]["params"])
    return Observation(
        torch=reference,
        mindspore=attempt(count, False),
        claim=Raised("ValueError", "its name 'weight' already exists"),
        neighbour=(reference, count(True)),
    )


@difference(
    "same-name-twice",
    "Two Parameters that you give the same name stay two with one name: a checkpoint keeps one.",
    torch="self.a = Parameter(x); self.b = Parameter(y)",
    mindspore='self.a = Parameter(x, name="w"); self.b = Parameter(y, name="w")',
    expected="differs",
    remedy="self.a = ms.Parameter(x); self.b = ms.Parameter(y)",
)
def same_name_twice() -> Observation:
    def ours(**given: str) -> int:
        net = Cell(a=ms.Parameter(ms.Tensor(X), **given), b=ms.Parameter(ms.Tensor(X), **given))
        return len(net.parameters_dict())

    theirs = Torch(
        a=torch.nn.Parameter(torch.tensor(X)), b=torch.nn.Parameter(torch.tensor(X))
    ).state_dict()
    return Observation(
        torch=len(theirs),
        mindspore=ours(name="w"),
        claim=1,
        neighbour=(len(theirs), ours()),
    )


@difference(
    "shared-layer-takes-the-last-name",
    "A layer held under two names carries the last one, PyTorch's the first.",
    torch="self.a = layer; self.b = self.a",
    mindspore="self.a = layer; self.b = self.a",
    expected="differs",
    remedy="self.b = layer  # only once",
)
def shared_layer_takes_the_last_name() -> Observation:
    theirs, ours = torch.nn.Linear(3, 3), nn.Dense(3, 3)
    return Observation(
        torch=names(Torch(a=theirs, b=theirs)),
        mindspore=names(Cell(a=ours, b=ours)),
        claim=("b.weight", "b.bias"),
        neighbour=(
            names(Torch(a=torch.nn.Linear(3, 3), b=torch.nn.Linear(3, 3))),
            names(Cell(a=nn.Dense(3, 3), b=nn.Dense(3, 3))),
        ),
    )


@difference(
    "tensor-becomes-the-weight",
    "A Tensor may be assigned to a parameter's name: its values are taken over. PyTorch wants a "
    "Parameter.",
    torch="linear.weight = tensor",
    mindspore="dense.weight = tensor",
    expected="accepts",
    remedy="ops.assign(dense.weight, tensor)",
)
def tensor_becomes_the_weight() -> Observation:
    def theirs(make: Any) -> Any:
        linear = torch.nn.Linear(3, 2)
        linear.weight = make(torch.tensor(X))
        return linear.weight.detach().clone()

    def ours() -> Any:
        dense = nn.Dense(3, 2)
        dense.weight = ms.Tensor(X)
        return dense.weight.asnumpy().copy()

    return Observation(
        torch=attempt(theirs, lambda tensor: tensor),
        mindspore=ours(),
        claim=X,
        neighbour=(theirs(torch.nn.Parameter), ours()),
    )


@difference(
    "numpy-input",
    "A layer refuses a NumPy array, as PyTorch does.",
    torch="torch.nn.ReLU()(numpy_array)",
    mindspore="nn.ReLU()(numpy_array)",
    expected="agrees",
    remedy="nn.ReLU()(ms.Tensor(numpy_array))",
)
def numpy_input() -> Observation:
    return Observation(
        torch=attempt(torch.nn.ReLU(), X),
        mindspore=attempt(nn.ReLU(), X),
        claim=Raised("TypeError", "Failed calling ReLU"),
        neighbour=(attempt(torch.nn.ReLU(), X), nn.ReLU()(ms.Tensor(X))),
    )


@difference(
    "ones-of-a-parameter",
    "Arithmetic on a Parameter gives a Tensor: after `net.w = net.w * 2` the Parameter holds the "
    "result and is still trained. PyTorch refuses the assignment.",
    torch="net.w = net.w * 2",
    mindspore="net.w = net.w * 2",
    expected="accepts",
    remedy="ops.assign(net.w, net.w * 2)",
)
def ones_of_a_parameter() -> Observation:
    def doubled(net: Any) -> tuple[Any, bool]:
        net.w = net.w * 2
        return net.w, bool(net.w.requires_grad)

    ours = Cell(w=ms.Parameter(ms.Tensor(X)))
    other = Cell(w=ms.Parameter(ms.Tensor(X)))
    ops.assign(other.w, other.w * 2)
    theirs = Torch(w=torch.nn.Parameter(torch.tensor(X)))
    seen = attempt(doubled, theirs)
    with torch.no_grad():
        theirs.w.copy_(theirs.w * 2)
    value, trained = doubled(ours)
    return Observation(
        torch=seen,
        mindspore=(value.asnumpy(), trained, len(ours.trainable_params())),
        claim=(2 * X, True, 1),
        neighbour=(theirs.w.detach(), other.w.asnumpy()),
    )


@difference(
    "set-data-takes-any-shape",
    "`set_data` takes a value of any shape, and the Parameter has that shape from then on.",
    torch="net.w.data.copy_(value_of_another_shape)",
    mindspore="net.w.set_data(value_of_another_shape)",
    expected="accepts",
    remedy="assert value.shape == net.w.shape; ops.assign(net.w, value)",
)
def set_data_takes_any_shape() -> Observation:
    def copied(value: Array) -> Any:
        net = Torch(w=torch.nn.Parameter(torch.tensor(X)))
        return attempt(lambda: tuple(net.w.data.copy_(torch.tensor(value)).shape))

    def put(value: Array) -> Any:
        net = Cell(w=ms.Parameter(ms.Tensor(X)))
        net.w.set_data(ms.Tensor(value))
        return tuple(net.w.shape), tuple(net.w.asnumpy().shape)

    other = np.ones((2, 2), np.float32)
    return Observation(
        torch=copied(other),
        mindspore=put(other),
        claim=((2, 2), (2, 2)),
        neighbour=((X.shape, X.shape), put(X)),
    )

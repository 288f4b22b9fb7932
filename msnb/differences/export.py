"""Files that ms.export writes, against programs that torch.export makes.

MindSpore's side is MindSpore's own exporter and loader, without the help of ``msnb.export``.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import nn

from msnb.differences import Observation, attempt, difference

_X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)


def _file(net: Any, x: Any = _X) -> Any:
    """Export, load: the function that the file holds."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "net")
        ms.export(net, ms.Tensor(x), file_name=path, file_format="MINDIR")
        return nn.GraphCell(ms.load(f"{path}.mindir"))


def _program(net: Any, x: Any = _X) -> Any:
    return torch.export.export(net, (torch.tensor(x),)).module()


# A second export in one process


class _TorchScaled(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.0
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: Any) -> Any:
        return x * self.weight * self.factor


class _Scaled(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.0
        self.weight = ms.Parameter(ms.Tensor(np.ones(1, np.float32)), name="weight")

    def construct(self, x: Any) -> Any:
        return x * self.weight * self.factor


def _exported_twice(what: str) -> tuple[Any, Any]:
    """Export, change ``what`` from 1 to 5, export again: what the second one gives."""
    theirs, ours = _TorchScaled(), _Scaled()
    _program(theirs)
    _file(ours)
    if what == "factor":
        theirs.factor = ours.factor = 5.0
    else:
        with torch.no_grad():
            theirs.weight.fill_(5.0)
        ours.weight.set_data(ms.Tensor(np.full(1, 5, np.float32)))
    return _program(theirs)(torch.tensor(_X)).detach(), _file(ours)(ms.Tensor(_X))


@difference(
    "second-attribute",
    "A second export of one net in one process writes the first graph again: an attribute that was "
    "changed in between has its old value in the file. Parameters have the new one.",
    torch="torch.export.export(net, (x,)); net.factor = 5; torch.export.export(net, (x,))",
    mindspore="ms.export(net, x, ...); net.factor = 5; ms.export(net, x, ...)",
    expected="differs",
    remedy="msnb.export(net, x, name), or keep the number in a Parameter",
)
def second_attribute() -> Observation:
    theirs, ours = _exported_twice("factor")
    return Observation(
        torch=theirs, mindspore=ours, claim=_X, neighbour=_exported_twice("parameter")
    )


def _same_twice(run: Any, x: Any) -> bool:
    return bool((run(x) == run(x)).all())


def _evaluation_after(first: bool) -> tuple[bool, bool]:
    """Whether the second export, in evaluation, repeats itself; the first is in mode ``first``."""
    theirs = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5))
    ours = nn.SequentialCell(nn.Flatten(), nn.Dropout(p=0.5))
    x = np.ones((4, 64), np.float32)
    theirs.train(first)
    ours.set_train(first)
    _program(theirs, x)
    _file(ours, x)
    theirs.eval()
    ours.set_train(False)
    return (
        _same_twice(_program(theirs, x), torch.tensor(x)),
        _same_twice(_file(ours, x), ms.Tensor(x)),
    )


@difference(
    "second-mode",
    "A net that was exported in training mode stays in training mode in a second export: after "
    "`set_train(False)` the file still drops values.",
    torch="torch.export.export(net, (x,)); net.eval(); torch.export.export(net, (x,))",
    mindspore="ms.export(net, x, ...); net.set_train(False); ms.export(net, x, ...)",
    expected="differs",
    remedy="msnb.export(net, x, name), which exports in inference mode; or set_train(False) first",
)
def second_mode() -> Observation:
    theirs, ours = _evaluation_after(True)
    return Observation(
        torch=theirs, mindspore=ours, claim=False, neighbour=_evaluation_after(False)
    )


# Sizes


def _dense() -> tuple[Any, Any]:
    theirs, ours = torch.nn.Linear(3, 2), nn.Dense(3, 2, weight_init="ones", bias_init="zeros")
    with torch.no_grad():
        theirs.weight.fill_(1.0)
        theirs.bias.fill_(0.0)
    return theirs, ours


def _given_rows(rows: int) -> tuple[Any, Any]:
    theirs, ours = _dense()
    x = _X[:rows]
    program, file = _program(theirs), _file(ours)
    seen = attempt(lambda: program(torch.tensor(x)).detach())
    return seen, attempt(lambda: file(ms.Tensor(x)))


@difference(
    "fixed-rows",
    "A file exported for two rows takes one row on a CPU; torch.export's program refuses it.",
    torch="torch.export.export(net, (x,)).module()(x[:1])",
    mindspore='nn.GraphCell(ms.load("net.mindir"))(x[:1])',
    expected="accepts",
    remedy='msnb.load_exported("net.mindir"), which refuses; or dynamic={0: "batch"} at export',
)
def fixed_rows() -> Observation:
    theirs, ours = _given_rows(1)
    claim = np.array([[6.0, 6.0]], np.float32)  # 1 + 2 + 3
    return Observation(torch=theirs, mindspore=ours, claim=claim, neighbour=_given_rows(2))


class _TorchGRU(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.rnn = torch.nn.GRU(4, 5, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.rnn(x)[0]


class _GRU(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 5, batch_first=True)

    def construct(self, x: Any) -> Any:
        return self.rnn(x)[0]


def _gru_shapes(rows: int) -> tuple[Any, Any]:
    x = np.ones((3, 2, 4), np.float32)
    file = _file(_GRU().set_train(False), x)
    file(ms.Tensor(x))
    theirs = _TorchGRU()(torch.tensor(x[:rows]))
    return tuple(theirs.shape), tuple(file(ms.Tensor(x[:rows])).shape)


@difference(
    "gru-rows",
    "A GRU exported for three rows returns three rows for one, without an error.",
    torch="gru(x[:1])[0].shape",
    mindspore='nn.GraphCell(ms.load("gru.mindir"))(x[:1])[0].shape',
    expected="differs",
    remedy='msnb.load_exported("gru.mindir"), which compares shapes before it hands out values',
)
def gru_rows() -> Observation:
    theirs, ours = _gru_shapes(1)
    return Observation(torch=theirs, mindspore=ours, claim=(3, 2, 5), neighbour=_gru_shapes(3))


# Outputs and files


class _TorchNone(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x * 2, None


class _None(nn.Cell):  # type: ignore[misc]
    def construct(self, x: Any) -> Any:
        return x * 2, None


class _TorchPair(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x * 2, x


class _Pair(nn.Cell):  # type: ignore[misc]
    def construct(self, x: Any) -> Any:
        return x * 2, x


def _first_output(theirs: Any, ours: Any) -> tuple[Any, Any]:
    program, file = _program(theirs), _file(ours)
    return program(torch.tensor(_X))[0], attempt(lambda: file(ms.Tensor(_X))[0])


@difference(
    "none-output",
    "A net that returns None beside a tensor is exported and loaded without a word; calling it "
    "raises.",
    torch="torch.export.export(net, (x,)).module()(x)",
    mindspore='nn.GraphCell(ms.load("net.mindir"))(x)',
    expected="raises",
    remedy="return tensors alone; msnb.export refuses the net before a file is written",
)
def none_output() -> Observation:
    theirs, ours = _first_output(_TorchNone(), _None())
    neighbour = _first_output(_TorchPair(), _Pair())
    return Observation(torch=theirs, mindspore=ours, neighbour=neighbour)


def _written(name: str) -> tuple[Any, Any]:
    """Whether each writes a file of that name."""
    theirs, ours = _dense()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        program = torch.export.export(theirs, (torch.tensor(_X),))
        torch.export.save(program, str(path.with_suffix(".pt2")))
        found = attempt(
            lambda: ms.export(ours, ms.Tensor(_X), file_name=str(path), file_format="MINDIR")
        )
        there = path.with_suffix(".mindir").exists()
        return path.with_suffix(".pt2").exists(), there if found is None else found


@difference(
    "path",
    "A path with a space in it is refused.",
    torch='torch.export.save(program, "my net.pt2")',
    mindspore='ms.export(net, x, file_name="my net", file_format="MINDIR")',
    expected="raises",
    remedy='msnb.export(net, x, "my net")',
)
def path() -> Observation:
    theirs, ours = _written("my net")
    return Observation(torch=theirs, mindspore=ours, neighbour=_written("my_net"))


def _readable_by(bit: int) -> tuple[bool, bool]:
    theirs, ours = _dense()
    mask = os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory() as folder:
            places = [Path(folder) / "net.pt2", Path(folder) / "net.mindir"]
            torch.export.save(torch.export.export(theirs, (torch.tensor(_X),)), str(places[0]))
            ms.export(ours, ms.Tensor(_X), file_name=str(places[1]), file_format="MINDIR")
            modes = [place.stat().st_mode for place in places]
    finally:
        os.umask(mask)
    return bool(modes[0] & bit), bool(modes[1] & bit)


@difference(
    "file-mode",
    "The file can be read by its owner alone, whatever the umask says.",
    torch='torch.export.save(program, "net.pt2")',
    mindspore='ms.export(net, x, file_name="net", file_format="MINDIR")',
    expected="differs",
    remedy="msnb.export(net, x, name), which leaves it to the umask",
)
def file_mode() -> Observation:
    theirs, ours = _readable_by(stat.S_IROTH)
    return Observation(
        torch=theirs, mindspore=ours, claim=False, neighbour=_readable_by(stat.S_IRUSR)
    )

"""Checkpoints and loading: names, missing keys, shapes, dtypes, file names, weights after a jit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import nn, ops

from msnb.differences import Observation, Raised, attempt, difference

Array = np.ndarray[Any, Any]

WEIGHT = np.array([[1.5, 2.5, 3.5], [4.5, 5.5, 6.5]], np.float32)
BIAS = np.array([0.25, 0.75], np.float32)


def parameters(**values: Any) -> dict[str, Any]:
    return {name: ms.Parameter(ms.Tensor(value), name=name) for name, value in values.items()}


def loaded(checkpoint: dict[str, Any], *, strict: bool = False) -> Array:
    """The weight of a Dense of zeros after ``load_param_into_net``."""
    net = nn.Dense(3, 2, weight_init="zeros", bias_init="zeros")
    ms.load_param_into_net(net, checkpoint, strict_load=strict)
    return np.asarray(net.weight.asnumpy())


def loaded_torch(*, strict: bool = True, **values: Any) -> Array:
    net = torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(net.weight)
    net.load_state_dict({k: torch.tensor(v) for k, v in values.items()}, strict=strict)
    return np.asarray(net.weight.detach().numpy())


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def files(save: Callable[[str], Any], name: str) -> tuple[str, ...]:
    """The names of the files that ``save`` makes when it is given ``name``."""
    with folder() as here:
        save(str(here / name))
        return tuple(sorted(path.name for path in here.iterdir()))


class Two(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(3, 2, weight_init="zeros", bias_init="zeros")

    def construct(self, x: Any) -> Any:
        return self.fc(x)


class Wrapped(nn.Cell):  # type: ignore[misc]
    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def construct(self, x: Any) -> Any:
        return self.net(x)


@difference(
    "missing-keys",
    "`load_param_into_net` does not raise where weights are missing from the checkpoint, not even "
    "with `strict_load=True`: it returns their names.",
    torch="net.load_state_dict(checkpoint)",
    mindspore="ms.load_param_into_net(net, checkpoint, strict_load=True)",
    expected="accepts",
    remedy="missing, extra = ms.load_param_into_net(net, checkpoint); assert not missing + extra",
)
def missing_keys() -> Observation:
    complete = parameters(weight=WEIGHT, bias=BIAS)
    return Observation(
        torch=attempt(loaded_torch, weight=WEIGHT),
        mindspore=loaded(parameters(weight=WEIGHT), strict=True),
        claim=WEIGHT,
        neighbour=(loaded_torch(weight=WEIGHT, bias=BIAS), loaded(complete, strict=True)),
    )


@difference(
    "extra-keys",
    "Keys of the checkpoint that the net does not have are no error either.",
    torch="net.load_state_dict(checkpoint)",
    mindspore="ms.load_param_into_net(net, checkpoint, strict_load=True)",
    expected="accepts",
    remedy="missing, extra = ms.load_param_into_net(net, checkpoint); assert not missing + extra",
)
def extra_keys() -> Observation:
    more = {"weight": WEIGHT, "bias": BIAS, "head": BIAS}
    return Observation(
        torch=attempt(loaded_torch, **more),
        mindspore=loaded(parameters(**more), strict=True),
        claim=WEIGHT,
        neighbour=(loaded_torch(strict=False, **more), loaded(parameters(**more))),
    )


@difference(
    "nothing-loaded",
    "A checkpoint of another net loads nothing and raises nothing: training begins with random "
    "weights.",
    torch="net.load_state_dict(checkpoint)",
    mindspore="ms.load_param_into_net(net, checkpoint)",
    expected="accepts",
    remedy="missing, extra = ms.load_param_into_net(net, checkpoint); assert not missing + extra",
)
def nothing_loaded() -> Observation:
    other = {"conv": WEIGHT}
    return Observation(
        torch=attempt(loaded_torch, **other),
        mindspore=loaded(parameters(**other)),
        claim=np.zeros((2, 3), np.float32),
        neighbour=(loaded_torch(strict=False, **other), loaded(parameters(**other))),
    )


@difference(
    "load-state-dict-is-strict",
    "`net.load_state_dict` raises for missing keys as PyTorch does: prefer it.",
    torch="net.load_state_dict(checkpoint)",
    mindspore="net.load_state_dict(checkpoint)",
    expected="agrees",
)
def load_state_dict_is_strict() -> Observation:
    def ours(**values: Any) -> Array:
        net = nn.Dense(3, 2)
        net.load_state_dict(parameters(**values))
        return np.asarray(net.weight.asnumpy())

    return Observation(
        torch=attempt(loaded_torch, weight=WEIGHT),
        mindspore=attempt(ours, weight=WEIGHT),
        claim=Raised("RuntimeError", "Error(s) in loading state_dict for Dense"),
        neighbour=(
            attempt(loaded_torch, weight=WEIGHT),
            loaded(parameters(weight=WEIGHT)),
        ),
    )


@difference(
    "prefix-is-stripped",
    "By default keys that end like the net's names are loaded too: a prefix all of them share is "
    "cut off without a word.",
    torch="net.load_state_dict(checkpoint)  # keys backbone.weight, backbone.bias",
    mindspore="ms.load_param_into_net(net, checkpoint)",
    expected="accepts",
    remedy="ms.load_param_into_net(net, checkpoint, strict_load=True)",
)
def prefix_is_stripped() -> Observation:
    prefixed = {"backbone.weight": WEIGHT, "backbone.bias": BIAS}
    return Observation(
        torch=attempt(loaded_torch, **prefixed),
        mindspore=loaded(parameters(**prefixed)),
        claim=WEIGHT,
        neighbour=(
            loaded_torch(strict=False, **prefixed),
            loaded(parameters(**prefixed), strict=True),
        ),
    )


@difference(
    "wrapping-renames",
    "Wrapping a net in another Cell changes the names of its parameters for good: its own "
    "checkpoint no longer fits, and the wrong load says nothing.",
    torch="Wrapped(net); net.load_state_dict(checkpoint)",
    mindspore="Wrapped(net); ms.load_param_into_net(net, checkpoint)",
    expected="differs",
    remedy="save and load through the same outermost Cell, or load before wrapping",
)
def wrapping_renames() -> Observation:
    def ours(wrap: bool) -> Array:
        net = nn.Dense(3, 2, weight_init="zeros")
        if wrap:
            Wrapped(net)
        ms.load_param_into_net(net, parameters(weight=WEIGHT, bias=BIAS))
        return np.asarray(net.weight.asnumpy())

    linear = torch.nn.Linear(3, 2)
    torch.nn.Sequential(linear)
    linear.load_state_dict({"weight": torch.tensor(WEIGHT), "bias": torch.tensor(BIAS)})
    reference = linear.weight.detach()
    return Observation(
        torch=reference,
        mindspore=ours(wrap=True),
        claim=np.zeros((2, 3), np.float32),
        neighbour=(reference, ours(wrap=False)),
    )


@difference(
    "shape-mismatch",
    "A wrong shape raises in both.",
    torch="net.load_state_dict(checkpoint)",
    mindspore="ms.load_param_into_net(net, checkpoint)",
    expected="agrees",
)
def shape_mismatch() -> Observation:
    return Observation(
        torch=attempt(loaded_torch, weight=WEIGHT.T.copy(), bias=BIAS),
        mindspore=attempt(loaded, parameters(weight=WEIGHT.T.copy(), bias=BIAS)),
        claim=Raised("RuntimeError", "should have the same shape as"),
        neighbour=(
            attempt(loaded_torch, weight=WEIGHT),
            loaded(parameters(weight=WEIGHT)),
        ),
    )


@difference(
    "integer-values",
    "PyTorch casts whatever it loads; here float16 and float64 are cast to the net's dtype, "
    "integers are refused.",
    torch="net.load_state_dict({'weight': int32, 'bias': float32})",
    mindspore="ms.load_param_into_net(net, checkpoint)",
    expected="raises",
    remedy="ms.Parameter(checkpoint['weight'].astype(ms.float32), name='weight')",
)
def integer_values() -> Observation:
    def both(weight: Array, strict: bool = False) -> tuple[Any, Any]:
        values = {"weight": weight, "bias": BIAS}
        return (
            attempt(loaded_torch, **values),
            attempt(loaded, parameters(**values), strict=strict),
        )

    theirs, ours = both(WEIGHT.astype(np.int32))
    return Observation(
        torch=theirs,
        mindspore=ours,
        claim=Raised("RuntimeError", "should have the same type as weight"),
        neighbour=both(WEIGHT.astype(np.float16)),
    )


@difference(
    "strict-means-dtype",
    "What `strict_load=True` makes strict are dtypes and prefixes: a float16 checkpoint no longer "
    "goes into a float32 net.",
    torch="net.load_state_dict(half, strict=True)",
    mindspore="ms.load_param_into_net(net, half, strict_load=True)",
    expected="raises",
    remedy="ms.load_param_into_net(net, half)",
)
def strict_means_dtype() -> Observation:
    half: dict[str, Any] = {"weight": WEIGHT.astype(np.float16), "bias": BIAS}
    reference = loaded_torch(**half)
    return Observation(
        torch=reference,
        mindspore=attempt(loaded, parameters(**half), strict=True),
        claim=Raised("RuntimeError", "should have the same type as weight"),
        neighbour=(reference, loaded(parameters(**half))),
    )


@difference(
    "values-are-parameters",
    "The values of the dictionary are Parameters: tensors and arrays are refused.",
    torch="net.load_state_dict({'weight': tensor, 'bias': tensor})",
    mindspore="ms.load_param_into_net(net, {'weight': tensor, 'bias': tensor})",
    expected="raises",
    remedy="{name: ms.Parameter(value, name=name) for name, value in tensors.items()}",
)
def values_are_parameters() -> Observation:
    reference = loaded_torch(weight=WEIGHT, bias=BIAS)
    bare = {"weight": ms.Tensor(WEIGHT), "bias": ms.Tensor(BIAS)}
    return Observation(
        torch=reference,
        mindspore=attempt(loaded, bare),
        claim=Raised("TypeError", "should be a 'str' and 'Parameter'"),
        neighbour=(reference, loaded(parameters(weight=WEIGHT, bias=BIAS))),
    )


@difference(
    "names-of-batch-norm",
    "The names of BatchNorm differ: gamma, beta, moving_mean, moving_variance, and no count of "
    "batches.",
    torch="torch.nn.Sequential(torch.nn.BatchNorm2d(3)).state_dict()",
    mindspore="nn.SequentialCell(nn.BatchNorm2d(3)).parameters_dict()",
    expected="differs",
    remedy="msnb.copy_weights(torch_net, ms_net)",
)
def names_of_batch_norm() -> Observation:
    def names(theirs: Any, ours: Any) -> tuple[list[str], list[str]]:
        return (
            sorted(torch.nn.Sequential(theirs).state_dict()),
            sorted(nn.SequentialCell(ours).parameters_dict()),
        )

    theirs, ours = names(torch.nn.BatchNorm2d(3), nn.BatchNorm2d(3))
    return Observation(
        torch=theirs,
        mindspore=ours,
        claim=["0.beta", "0.gamma", "0.moving_mean", "0.moving_variance"],
        neighbour=names(torch.nn.Linear(3, 2), nn.Dense(3, 2)),
    )


@difference(
    "names-of-embedding-and-layer-norm",
    "Embedding has an `embedding_table`, LayerNorm gamma and beta; PyTorch has weight and bias.",
    torch="torch.nn.Embedding(3, 2), torch.nn.LayerNorm(2)",
    mindspore="nn.Embedding(3, 2), nn.LayerNorm((2,))",
    expected="differs",
    remedy="msnb.copy_weights(torch_net, ms_net)",
)
def names_of_embedding_and_layer_norm() -> Observation:
    def names(theirs: Any, ours: Any) -> tuple[list[str], list[str]]:
        return sorted(theirs.state_dict()), sorted(ours.parameters_dict())

    embedding = names(torch.nn.Embedding(3, 2), nn.Embedding(3, 2))
    norm = names(torch.nn.LayerNorm(2), nn.LayerNorm((2,)))
    return Observation(
        torch=(embedding[0], norm[0]),
        mindspore=(embedding[1], norm[1]),
        claim=(["embedding_table"], ["beta", "gamma"]),
        neighbour=names(torch.nn.LSTM(3, 2), nn.LSTM(3, 2)),
    )


@difference(
    "batch-norm-alone",
    "A BatchNorm that is the net itself calls its statistics `mean` and `variance`; inside a net "
    "they are `moving_mean` and `moving_variance`.",
    torch="bn.state_dict() within torch.nn.Sequential(bn).state_dict()",
    mindspore="bn.parameters_dict() within nn.SequentialCell(bn).parameters_dict()",
    expected="differs",
    remedy="nn.SequentialCell(bn).parameters_dict()",
)
def batch_norm_alone() -> Observation:
    def same_names(theirs: Any, ours: Any) -> tuple[bool, bool]:
        alone = list(theirs.state_dict()), list(ours.parameters_dict())
        inside = (
            list(torch.nn.Sequential(theirs).state_dict()),
            list(nn.SequentialCell(ours).parameters_dict()),
        )
        return (
            [f"0.{name}" for name in alone[0]] == inside[0],
            [f"0.{name}" for name in alone[1]] == inside[1],
        )

    theirs, ours = same_names(torch.nn.BatchNorm2d(3), nn.BatchNorm2d(3))
    return Observation(
        torch=theirs,
        mindspore=ours,
        claim=False,
        neighbour=same_names(torch.nn.Linear(3, 2), nn.Dense(3, 2)),
    )


@difference(
    "file-name-grows",
    "`save_checkpoint` appends `.ckpt` to any other ending: what is saved as `net.safetensors` is "
    "the file `net.safetensors.ckpt`, in the other format.",
    torch="torch.save(net.state_dict(), 'net.pth')",
    mindspore="ms.save_checkpoint(net, 'net.safetensors')",
    expected="differs",
    remedy="ms.save_checkpoint(net, 'net.safetensors', format='safetensors')",
)
def file_name_grows() -> Observation:
    net = nn.Dense(3, 2)
    reference = files(lambda path: torch.save(WEIGHT, path), "net.safetensors")
    return Observation(
        torch=reference,
        mindspore=files(lambda path: ms.save_checkpoint(net, path), "net.safetensors"),
        claim=("net.safetensors.ckpt",),
        neighbour=(
            reference,
            files(
                lambda path: ms.save_checkpoint(net, path, format="safetensors"),
                "net.safetensors",
            ),
        ),
    )


@difference(
    "format-must-be-told",
    "`load_checkpoint` does not look at the file: a safetensors file needs "
    "`format='safetensors'` again.",
    torch="torch.load(path)",
    mindspore="ms.load_checkpoint('net.safetensors')",
    expected="raises",
    remedy="ms.load_checkpoint('net.safetensors', format='safetensors')",
)
def format_must_be_told() -> Observation:
    net = nn.Dense(3, 2, weight_init=ms.Tensor(WEIGHT))
    with folder() as here:
        path = str(here / "net.safetensors")
        ms.save_checkpoint(net, path, format="safetensors")
        torch.save(WEIGHT, here / "net.pth")
        reference = torch.load(here / "net.pth", weights_only=False)
        refused = attempt(lambda: ms.load_checkpoint(path)["weight"].asnumpy())
        told = ms.load_checkpoint(path, format="safetensors")["weight"].asnumpy().copy()
    return Observation(
        torch=reference,
        mindspore=Raised(refused.type, refused.message.partition(", but got")[0]),
        claim=Raised("ValueError", "the checkpoint file format must same with 'format'"),
        neighbour=(reference, told),
    )


@difference(
    "empty-ending",
    "Without an ending `.ckpt` is appended.",
    torch="torch.save(net.state_dict(), 'net')",
    mindspore="ms.save_checkpoint(net, 'net')",
    expected="differs",
    remedy="ms.save_checkpoint(net, 'net.ckpt')",
)
def empty_ending() -> Observation:
    net = nn.Dense(3, 2)

    def both(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return (
            files(lambda path: torch.save(WEIGHT, path), name),
            files(lambda path: ms.save_checkpoint(net, path), name),
        )

    theirs, ours = both("net")
    return Observation(theirs, ours, claim=("net.ckpt",), neighbour=both("net.ckpt"))


@difference(
    "extra-numbers-are-float32",
    "Numbers saved with `append_dict` come back as Parameters, a Python float rounded to float32.",
    torch="torch.save({'lr': 0.1, 'epoch': 3}, path)",
    mindspore="ms.save_checkpoint(net, path, append_dict={'lr': 0.1, 'epoch': 3})",
    expected="differs",
    remedy="ms.save_checkpoint(net, path, append_dict={'lr': str(0.1)})",
)
def extra_numbers_are_float32() -> Observation:
    with folder() as here:
        path = str(here / "net.ckpt")
        more = {"lr": 0.1, "epoch": 3, "text": "0.1"}
        ms.save_checkpoint(nn.Dense(3, 2), path, append_dict=more)
        torch.save(more, here / "net.pth")
        theirs, ours = torch.load(here / "net.pth"), ms.load_checkpoint(path)
        rate, epoch, text = ours["lr"].asnumpy().item(), int(ours["epoch"]), str(ours["text"])
    return Observation(
        torch=repr(theirs["lr"]),
        mindspore=repr(rate),
        claim=repr(float(np.float32(0.1))),
        neighbour=((theirs["epoch"], theirs["text"]), (epoch, text)),
    )


@difference(
    "frozen-is-forgotten",
    "Neither framework saves that a parameter is frozen.",
    torch="weight.requires_grad = False; save; load",
    mindspore="weight.requires_grad = False; save; load",
    expected="agrees",
)
def frozen_is_forgotten() -> Observation:
    net = nn.Dense(3, 2)
    net.weight.requires_grad = False
    with folder() as here:
        ms.save_checkpoint(net, str(here / "net.ckpt"))
        again = nn.Dense(3, 2)
        ms.load_param_into_net(again, ms.load_checkpoint(str(here / "net.ckpt")))
    theirs, fresh = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    theirs.weight.requires_grad = False
    fresh.load_state_dict(theirs.state_dict())
    return Observation(
        torch=fresh.weight.requires_grad,
        mindspore=bool(again.weight.requires_grad),
        neighbour=(fresh.weight.requires_grad, bool(net.weight.requires_grad)),
    )


@difference(
    "save-a-dictionary",
    "`save_checkpoint` takes a list of names and tensors, a dictionary of tensors fails in "
    "reading: the file is empty.",
    torch="torch.save({'weight': tensor}, path)",
    mindspore="ms.save_checkpoint({'weight': tensor}, path)",
    expected="raises",
    remedy="ms.save_checkpoint([{'name': 'weight', 'data': tensor}], path)",
)
def save_a_dictionary() -> Observation:
    def trip(content: Any) -> Array:
        with folder() as here:
            path = str(here / "net.ckpt")
            ms.save_checkpoint(content, path)
            return np.asarray(ms.load_checkpoint(path)["weight"].asnumpy()).copy()

    seen = attempt(trip, {"weight": ms.Tensor(WEIGHT)})
    return Observation(
        torch=torch.tensor(WEIGHT),
        mindspore=seen,
        claim=Raised("UnboundLocalError", "cannot access local variable 'each_param'"),
        neighbour=(
            torch.tensor(WEIGHT),
            trip([{"name": "weight", "data": ms.Tensor(WEIGHT)}]),
        ),
    )


@difference(
    "missing-file",
    "A file that is not there is a ValueError, not a FileNotFoundError: an `except` ported from "
    "PyTorch does not catch it.",
    torch="except FileNotFoundError",
    mindspore="except FileNotFoundError",
    expected="differs",
    remedy="except ValueError",
)
def missing_file() -> Observation:
    with folder() as here:
        theirs = attempt(torch.load, here / "net.pth")
        ours = attempt(ms.load_checkpoint, str(here / "net.ckpt"))
        there = attempt(len, (here / "net.ckpt").name)
    return Observation(
        torch=theirs.type,
        mindspore=ours.type,
        claim="ValueError",
        neighbour=(there, there),
    )


@difference(
    "loading-shares-memory",
    "Loading from another net's parameters shares their memory: training one net then changes the "
    "other (a target network, an average, a teacher). PyTorch copies.",
    torch="target.load_state_dict(net.state_dict())",
    mindspore="ms.load_param_into_net(target, net.parameters_dict())",
    expected="differs",
    remedy="target.load_state_dict(net.state_dict())",
)
def loading_shares_memory() -> Observation:
    def target_after_training(load: Callable[[Any, Any], Any]) -> Array:
        net = nn.Dense(3, 2, weight_init=ms.Tensor(WEIGHT))
        target = nn.Dense(3, 2)
        load(target, net)
        optimizer = nn.SGD(net.trainable_params(), 0.5)
        optimizer(tuple(ops.ones_like(p) for p in optimizer.parameters))
        return np.asarray(target.weight.asnumpy()).copy()

    online, target = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    with torch.no_grad():
        online.weight.copy_(torch.tensor(WEIGHT))
    target.load_state_dict(online.state_dict())
    for parameter in online.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(online.parameters(), 0.5).step()
    reference = target.weight.detach()
    return Observation(
        torch=reference,
        mindspore=target_after_training(
            lambda target, net: ms.load_param_into_net(target, net.parameters_dict())
        ),
        claim=WEIGHT - np.float32(0.5),
        neighbour=(
            reference,
            target_after_training(lambda target, net: target.load_state_dict(net.state_dict())),
        ),
    )


@difference(
    "loading-after-a-jit-call",
    "In PyNative mode a function under `@ms.jit` keeps the weights of its first call: what is "
    "loaded later with `load_param_into_net` or `set_data` does not reach it (CPU).",
    torch="compiled(x); net.load_state_dict(checkpoint); compiled(x)",
    mindspore="compiled(x); ms.load_param_into_net(net, checkpoint); compiled(x)",
    expected="off",
    remedy="for p in net.get_parameters(): ops.assign(p, checkpoint[p.name])",
)
def loading_after_a_jit_call() -> Observation:
    x = np.ones((1, 3), np.float32)

    def after(load: Callable[[Any, dict[str, Any]], Any]) -> Array:
        net = Two()

        @ms.jit  # type: ignore[untyped-decorator]
        def compiled(x: Any) -> Any:
            return net(x)

        compiled(ms.Tensor(x))
        load(net, parameters(**{"fc.weight": WEIGHT, "fc.bias": BIAS}))
        return np.asarray(compiled(ms.Tensor(x)).asnumpy())

    reference = torch.nn.functional.linear(*map(torch.tensor, (x, WEIGHT, BIAS)))

    def assign(net: Any, checkpoint: dict[str, Any]) -> None:
        for parameter in net.get_parameters():
            ops.assign(parameter, checkpoint[parameter.name])

    return Observation(
        torch=reference,
        mindspore=after(ms.load_param_into_net),
        claim=np.zeros((1, 2), np.float32),
        right=(x.astype(np.float64) @ WEIGHT.T.astype(np.float64) + BIAS).astype(np.float32),
        neighbour=(reference, after(assign)),
    )


@difference(
    "loading-after-a-step",
    "Loading a checkpoint after the optimizer's first step stops the training: the steps that "
    "follow change nothing (CPU, PyNative).",
    torch="step(); net.load_state_dict(checkpoint); step()",
    mindspore="step(); ms.load_param_into_net(net, checkpoint); step()",
    expected="off",
    remedy="optimizer = nn.SGD(net.trainable_params(), 0.1)  # after loading",
)
def loading_after_a_step() -> Observation:
    def ours(again: bool) -> Array:
        checkpoint = parameters(weight=WEIGHT, bias=BIAS)
        net = nn.Dense(3, 2)
        optimizer = nn.SGD(net.trainable_params(), 0.5)
        ones = tuple(ops.ones_like(p) for p in optimizer.parameters)
        optimizer(ones)
        ms.load_param_into_net(net, checkpoint)
        if again:
            optimizer = nn.SGD(net.trainable_params(), 0.5)
        optimizer(ones)
        return np.asarray(net.weight.asnumpy())

    linear = torch.nn.Linear(3, 2)
    sgd = torch.optim.SGD(linear.parameters(), 0.5)
    for parameter in linear.parameters():
        parameter.grad = torch.ones_like(parameter)
    sgd.step()
    linear.load_state_dict({"weight": torch.tensor(WEIGHT), "bias": torch.tensor(BIAS)})
    sgd.step()
    reference = linear.weight.detach()
    return Observation(
        torch=reference,
        mindspore=ours(again=False),
        claim=WEIGHT,
        right=WEIGHT - np.float32(0.5),
        neighbour=(reference, ours(again=True)),
    )

"""Probe: each fault is found and named, by numbers computed here and not by the code under test."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mindspore import mint, nn, ops

from msnb.parity import probe
from msnb.parity.calls import attempt, clear
from msnb.report import Report

Array = np.ndarray[Any, Any]
EAGER = ("pynative",)


def f(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def call(function: Any, *arrays: Array) -> Array:
    return function(*map(ms.Tensor, arrays)).asnumpy()


def bad(report: Report) -> set[str]:
    return {check.id for check in report if check.status in ("failed", "error")}


def with_weights(torch_net: Any, ms_net: Any) -> tuple[Any, Any]:
    for value, parameter in zip(
        torch_net.parameters(),
        [p for n, p in ms_net.parameters_and_names() if "moving" not in n],
        strict=True,
    ):
        parameter.set_data(ms.Tensor(value.detach().numpy().reshape(parameter.shape)))
    return torch_net, ms_net


# The field cases: found, named, and gone once the remedy is followed


def correlate(x: Array, w: Array, stride: int, before: int, after: int) -> Array:
    """A convolution by its definition, with the padding stated for each side."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (before, after), (before, after)))
    k = w.shape[-1]
    size = (x.shape[-1] - k) // stride + 1
    out = np.zeros((x.shape[0], w.shape[0], size, size))
    for i in range(size):
        for j in range(size):
            window = x[:, :, i * stride : i * stride + k, j * stride : j * stride + k]
            out[:, :, i, j] = np.einsum("bcij,ocij->bo", window, w)
    return out


@pytest.mark.parametrize(("size", "kernel", "seed"), [(6, 3, 0), (8, 3, 1), (10, 5, 2), (32, 3, 3)])
def test_same_padding_with_a_stride_on_even_input(size: int, kernel: int, seed: int) -> None:
    pad = kernel // 2
    torch_net, ms_net = with_weights(
        torch.nn.Conv2d(3, 8, kernel, stride=2, padding=pad, bias=False),
        nn.Conv2d(3, 8, kernel, stride=2, pad_mode="same"),
    )
    x = f(2, 3, size, size, seed=seed)
    weight = torch_net.weight.detach().numpy()
    assert np.allclose(call(ms_net, x), correlate(x, weight, 2, pad - 1, pad), atol=1e-5)
    row = probe(torch_net, ms_net, [x], modes=EAGER)["result (pynative)"]
    assert row.status == "failed"
    assert "the input moved by -1 along axis 2 and axis 3" in row.found
    assert 'pad_mode="pad", padding=' in row.remedy
    odd = f(2, 3, size + 1, size + 1, seed=seed)
    assert probe(torch_net, ms_net, [odd], modes=EAGER, extremes=False).ok
    right = with_weights(torch_net, nn.Conv2d(3, 8, kernel, 2, pad_mode="pad", padding=pad))
    assert probe(*right, [x], modes=EAGER, extremes=False).ok


def test_same_padding_in_one_dimension() -> None:
    torch_net, ms_net = with_weights(
        torch.nn.Conv1d(2, 4, 3, stride=2, padding=1, bias=False),
        nn.Conv1d(2, 4, 3, stride=2, pad_mode="same"),
    )
    row = probe(torch_net, ms_net, [f(2, 2, 12)], modes=EAGER)["result (pynative)"]
    assert "moved by -1 along axis 2" in row.found


@pytest.mark.parametrize(("drop", "size"), [(0.1, 200), (0.3, 60)])
def test_dropout_that_keeps_what_pytorch_drops(drop: float, size: int) -> None:
    ones = np.ones((size, size), np.float32)
    net = nn.Dropout(drop).set_train()
    assert abs((call(net, ones) == 0).mean() - (1 - drop)) < 0.03
    row = probe(torch.nn.Dropout(drop), net, [ones], modes=EAGER)["result (pynative)"]
    assert row.status == "failed"
    assert "share of zeros" in row.summary
    assert "the probability to keep; write nn.Dropout(p=" in row.remedy
    right = nn.Dropout(p=drop).set_train()
    assert probe(torch.nn.Dropout(drop), right, [ones], modes=EAGER).ok


@pytest.mark.parametrize("shape", [(20, 20), (4, 50)])
def test_a_cell_that_was_not_set_to_train(shape: tuple[int, ...]) -> None:
    ones = np.ones(shape, np.float32)
    net = nn.Dropout(p=0.5)
    assert (call(net, ones) == 1).all()
    report = probe(torch.nn.Dropout(0.5), net, [ones], modes=EAGER)
    assert report["training flag"].remedy == "ms_net.set_train(True)"
    assert "PyTorch gives another result" in report["repeatable (pynative)"].summary
    assert "set_train" in report["repeatable (pynative)"].remedy
    assert probe(torch.nn.Dropout(0.5), net.set_train(), [ones], modes=EAGER).ok


def test_dropout_that_evaluation_does_not_switch_off() -> None:
    class Always(nn.Cell):  # type: ignore[misc]
        def construct(self, x: Any) -> Any:
            return ops.dropout(x, p=0.5)

    row = probe(
        torch.nn.Dropout(0.5), nn.SequentialCell(nn.Dropout(p=0.5), Always()).set_train(),
        [np.ones((20, 20), np.float32)], modes=EAGER,
    )["result (evaluation)"]  # fmt: skip
    assert row.status == "failed"
    assert "MindSpore gives another result on each call in evaluation mode" in row.summary


@pytest.mark.parametrize(("momentum", "channels", "dims"), [(0.1, 3, 2), (0.25, 5, 2), (0.1, 4, 1)])
def test_batch_norm_momentum_copied_from_pytorch(momentum: float, channels: int, dims: int) -> None:
    x = f(6, channels, *(4,) * (dims if dims > 1 else 0), seed=channels) + 1
    layers = {1: (torch.nn.BatchNorm1d, nn.BatchNorm1d), 2: (torch.nn.BatchNorm2d, nn.BatchNorm2d)}
    make_torch, make_ms = layers[dims]
    mean = x.mean(axis=tuple(i for i in range(x.ndim) if i != 1))
    report = probe(
        make_torch(channels, momentum=momentum),
        net := make_ms(channels, momentum=momentum).set_train(),
        [x],
        modes=EAGER,
        extremes=False,
    )
    assert bad(report) == {"running statistics"}, report
    row = report["running statistics"]
    assert f"{(1 - momentum) / momentum:.3g} times as far" in row.found
    assert f"write momentum={1 - momentum:g}" in row.remedy
    assert not net.moving_mean.asnumpy().any()  # given back
    call(net, x)
    assert np.allclose(net.moving_mean.asnumpy(), (1 - momentum) * mean, rtol=1e-5, atol=1e-6)
    right = make_ms(channels, momentum=1 - momentum).set_train()
    assert probe(
        make_torch(channels, momentum=momentum), right, [x], modes=EAGER, extremes=False
    ).ok


@pytest.mark.parametrize(("scale", "shape"), [(1e-3, (4, 8)), (3e-3, (2, 5, 16)), (1e-4, (3, 6))])
def test_layer_norm_with_another_eps(scale: float, shape: tuple[int, ...]) -> None:
    x = f(*shape, seed=3) * np.float32(scale)
    size = shape[-1]
    exact = x.astype(np.float64)
    centred = exact - exact.mean(-1, keepdims=True)
    right = centred / np.sqrt(centred.var(-1, keepdims=True) + 1e-7)
    assert np.allclose(call(nn.LayerNorm((size,)), x), right, rtol=1e-3, atol=1e-4)
    row = probe(torch.nn.LayerNorm(size), nn.LayerNorm((size,)), [x], modes=EAGER)[
        "result (pynative)"
    ]
    assert row.status == "failed"
    assert "eps" in row.remedy
    assert "PyTorch 1e-05, MindSpore 1e-07; write epsilon=1e-05" in row.remedy
    same = nn.LayerNorm((size,), epsilon=1e-5)
    assert probe(torch.nn.LayerNorm(size), same, [x], modes=EAGER, extremes=False).ok


def test_another_eps_in_a_function_and_not_in_an_activation() -> None:
    x = f(3, 8) * np.float32(1e-3)
    row = probe(
        lambda a: F.layer_norm(a, (8,)),
        lambda a: (a - a.mean(1, True)) / ops.sqrt(a.var(1, keepdims=True) + 1e-8),
        [x],
        modes=EAGER,
    )["result (pynative)"]
    assert "likely eps" in row.remedy
    for torch_fn, ms_fn in ((F.gelu, nn.GELU()), (torch.sigmoid, ops.hardsigmoid)):
        row = probe(torch_fn, ms_fn, [f(3, 8)], modes=EAGER)["result (pynative)"]
        assert row.status == "failed"
        assert "eps" not in row.remedy


@pytest.mark.parametrize(("index", "rows"), [(2, 6), (0, 5)])
def test_the_gradient_of_a_padding_row(index: int, rows: int) -> None:
    torch_net, ms_net = with_weights(
        torch.nn.Embedding(rows, 4, padding_idx=index), nn.Embedding(rows, 4, padding_idx=index)
    )
    ids = np.array([[index, 1, 3], [index, 4, 1]])
    report = probe(torch_net, ms_net, [ids], modes=EAGER)
    (row,) = (check for check in report if check.status == "failed")
    assert row.id.startswith("gradients (pynative): weight")
    assert f"only row {index} of {rows}" in row.found
    assert "padding_idx" in row.remedy
    ones = ms.grad(lambda i: ms_net(i).sum(), None, ms_net.embedding_table)(ms.Tensor(ids))
    counts = np.bincount(ids.ravel(), minlength=rows)
    assert (ones.asnumpy() == counts[:, None]).all()  # every row flows, the padding row too


def test_a_negative_index_that_wraps() -> None:
    torch_net, ms_net = with_weights(torch.nn.Embedding(6, 4), nn.Embedding(6, 4))
    ids = np.array([[0, 2, 3], [-1, 5, 1]])
    row = probe(torch_net, ms_net, [ids], modes=EAGER)["result (pynative)"]
    assert row.summary == "PyTorch raises IndexError, MindSpore returns a value"
    assert "argument 0 holds -1" in row.found
    assert "assert (index >= 0).all()" in row.remedy


@pytest.mark.parametrize(("kernel", "size"), [(2, 7), (2, 8), (3, 9)])
@pytest.mark.parametrize("pool", ["Max", "Avg"])
def test_pooling_with_another_stride(pool: str, kernel: int, size: int) -> None:
    torch_net = getattr(torch.nn, f"{pool}Pool2d")(kernel)
    ms_net = getattr(nn, f"{pool}Pool2d")(kernel)
    x = f(1, 2, size, size)
    assert ms_net(ms.Tensor(x)).shape[-1] == size - kernel + 1  # stride 1
    row = probe(torch_net, ms_net, [x], modes=EAGER)["result (pynative)"]
    assert row.status == "failed"
    assert f"every {'second' if kernel == 2 else 'third'} element" in row.found
    assert f"stride={kernel}" in row.remedy
    right = getattr(nn, f"{pool}Pool2d")(kernel, kernel)
    assert probe(torch_net, right, [x], modes=EAGER, extremes=False).ok


def mul_(x: Any) -> Any:
    return x.mul_(3)


def add_(x: Any) -> Any:
    return x.add_(10)


def sub_(x: Any) -> Any:
    return x.sub_(1.5)


def div_(x: Any) -> Any:
    return x.div_(4)


def exp_(x: Any) -> Any:
    return x.exp_()


def copy_(x: Any, y: Any) -> Any:
    return x.copy_(y)


@pytest.mark.parametrize("function", [add_, sub_, div_, exp_, mul_])
def test_an_in_place_method_that_leaves_its_receiver_alone(function: Any) -> None:
    x = f(2, 3)
    tensor = ms.Tensor(x)
    function(tensor)
    assert (tensor.asnumpy() == x).all()
    row = probe(function, function, [x], modes=EAGER, extremes=False)["argument 0 in place"]
    assert row.status == "failed"
    assert row.summary == "PyTorch changed it, MindSpore left it alone"
    assert "not x.add_(1)" in row.remedy


def test_an_in_place_method_that_works() -> None:
    report = probe(copy_, copy_, [f(2, 3), f(2, 3, seed=1)], modes=EAGER, extremes=False)
    assert report["argument 0 in place"].status == "ok"


def std(x: Any) -> Any:
    return x.std()


def var(x: Any) -> Any:
    return x.var()


@pytest.mark.parametrize(("function", "shape"), [(std, (2, 3)), (var, (3, 4)), (var, (10,))])
def test_a_deviation_over_n_and_not_n_minus_1(function: Any, shape: tuple[int, ...]) -> None:
    x = f(*shape, seed=5)
    right = getattr(x.astype(np.float64), function.__name__)()  # NumPy divides by n
    assert call(function, x) == pytest.approx(right, rel=1e-5)
    row = probe(function, function, [x], modes=EAGER)["result (pynative)"]
    assert row.status == "failed"
    assert f"of n = {x.size} values over n, in PyTorch over n - 1" in row.found
    assert "ddof" in row.remedy


@pytest.mark.parametrize("length", [10, 37])
def test_a_sum_for_a_mean(length: int) -> None:
    row = probe(lambda x: x.sum(1), lambda x: x.mean(1), [f(3, length) + 1], modes=EAGER)[
        "result (pynative)"
    ]
    assert f"PyTorch adds up n = {length} values, MindSpore averages them" in row.found


def test_a_deviation_along_an_axis() -> None:
    row = probe(lambda x: x.std(1), lambda x: x.std(1), [f(5, 12)], modes=EAGER)[
        "result (pynative)"
    ]
    assert "standard deviation of n = 12 values over n" in row.found
    right = probe(
        lambda x: x.std(1), lambda x: ops.std(x, 1, ddof=1), [f(5, 12)], modes=EAGER, extremes=False
    )
    assert right["result (pynative)"].status == "ok"


@pytest.mark.parametrize("classes", [3, 5])
def test_labels_of_another_integer_dtype(classes: int) -> None:
    x, labels = f(4, classes), np.arange(4) % classes
    report = probe(torch.nn.CrossEntropyLoss(), nn.CrossEntropyLoss(), [x, labels], modes=EAGER)
    row = report["result (pynative)"]
    assert row.summary == "MindSpore raises, PyTorch returns a value"
    assert "MindSpore takes int32 for argument 1, not int64" in row.remedy

    def cast(a: Any, y: Any) -> Any:
        return nn.CrossEntropyLoss()(a, y.astype(ms.int32))

    assert probe(F.cross_entropy, cast, [x, labels], modes=EAGER, extremes=False).ok


# Errors that arrive late


def test_an_error_belongs_to_the_call_that_made_it() -> None:
    x = f(2, 3)
    report = probe(lambda a: torch.stack([a, a]), lambda a: mint.stack([a, a]), [x], modes=EAGER)
    row = report["result (pynative)"]
    assert "StackExt unregistered" in row.found
    assert "mindspore.ops" in row.remedy
    assert clear() == ""
    assert (ops.abs(ms.Tensor(x)).asnumpy() == np.abs(x)).all()
    after = probe(torch.abs, ops.abs, [x], modes=EAGER)
    assert after.ok
    assert "before the probe" not in after


def test_an_error_from_before_is_told_and_not_blamed_on_the_operator() -> None:
    mint.log10(ms.Tensor(f(3)))
    report = probe(torch.abs, ops.abs, [f(2, 3)], modes=EAGER)
    assert report.ok
    assert "The kernel Log10 unregistered" in report["before the probe"].summary


# Exceptions, randomness, range


def test_one_side_raises() -> None:
    def picky(x: Any) -> Any:
        raise ValueError("no")

    report = probe(picky, ops.abs, [f(3)], modes=EAGER)
    assert (
        report["result (pynative)"].summary
        == "PyTorch raises ValueError, MindSpore returns a value"
    )
    assert report["result (pynative)"].expected == "ValueError: no"
    both = probe(picky, picky, [f(3)], modes=EAGER)
    assert both.ok
    assert both["result (pynative)"].summary.startswith("both refuse")


def test_neither_can_be_called() -> None:
    report = probe(torch.matmul, ops.matmul, [f(3)], modes=EAGER)
    assert report["result (pynative)"].status == "error"
    assert "nothing was compared" in report["result (pynative)"].remedy


def test_random_operators_are_compared_by_their_statistics() -> None:
    def pair(mean: float) -> Any:
        return lambda x: x * 0 + ops.randn(50) + mean

    def plain(x: Any) -> Any:
        return x * 0 + torch.randn(50)

    x = np.zeros(50, np.float32)
    assert probe(plain, pair(0.0), [x], modes=EAGER).ok
    row = probe(plain, pair(0.5), [x], modes=EAGER)["result (pynative)"]
    assert row.status == "failed"
    assert "mean: PyTorch" in row.summary


def test_a_tanh_above_one_is_found_on_a_small_input() -> None:
    top = call(ops.tanh, np.linspace(4.9, 5.05, 400, dtype=np.float32)).max()
    assert top > 1  # the fault is there
    report = probe(torch.tanh, ops.tanh, [f(2, 3)], modes=EAGER)
    assert report["range above"].metrics["beyond"] == pytest.approx(top - 1, rel=0.2)
    assert report["range below"].status == "failed"
    scan = report["scan from -12 to 12"]
    assert "for |argument| from" in scan.found
    assert "float32 kernel is imprecise" in scan.found
    assert "astype(ms.float64)" in scan.remedy


def test_cancellation_is_named() -> None:
    x = np.linspace(1e-6, 1e-5, 12, dtype=np.float32)
    got = call(ops.expm1, x).astype(np.float64) * 2**24
    assert (got == np.round(got)).all()
    row = probe(torch.expm1, ops.expm1, [x], modes=EAGER)["result (pynative)"]
    assert "last bit of 1" in row.found


def test_ill_conditioned_is_not_wrong_and_wrong_is_not_excused() -> None:
    x = np.float32([1.5707962, 1.5707958, 1.57079, 0.5])
    assert probe(torch.tan, ops.tan, [x], modes=EAGER, extremes=False).ok
    row = probe(torch.tan, lambda a: ops.tan(a) * 1.5, [x], modes=EAGER)["result (pynative)"]
    assert row.status == "failed"


def test_a_given_reference_tells_which_side_is_off() -> None:
    x = f(4, 5)
    report = probe(lambda a: a * 1.01, lambda a: a * 1.0, [x], modes=EAGER, reference=lambda a: a)
    summary = report["result (pynative)"].summary
    assert "against the reference MindSpore is 0 off" in summary
    assert "PyTorch's side is the one that is off" in summary

    def broken(a: Any) -> Any:
        raise RuntimeError("out of work")

    with pytest.raises(
        ValueError, match=r"reference raised on float64 torch tensors: .*out of work"
    ):
        probe(torch.abs, ops.abs, [x], modes=EAGER, reference=broken)


def test_nothing_swallows_nan_unseen() -> None:
    report = probe(torch.relu, ops.relu, [f(2, 3)], modes=EAGER)
    assert np.isnan(torch.relu(torch.tensor([float("nan")]))).all()
    assert bad(report) == {"extreme: NaN"}
    assert "isfinite" in report["extreme: NaN"].remedy
    assert "in float64" not in report["extreme: NaN"].summary  # "0 off" would be no comfort


# Modes


def test_every_mode_and_what_does_not_compile() -> None:
    x = f(2, 3)
    before = ms.get_context("mode")
    report = probe(torch.exp, ops.exp, [x], modes=("pynative", "jit", "graph"), extremes=False)
    assert report.ok
    assert {"result (jit)", "result (graph)", "gradients (jit)", "gradients (graph)"} <= {
        check.id for check in report
    }
    assert ms.get_context("mode") == before
    pair = [torch.exp, lambda a: ops.exp(a)]
    usual = probe(*pair, [x], extremes=False)
    assert usual.ok
    assert usual["result (jit)"].status == "skipped"
    assert "a lambda among other code" in usual["result (jit)"].summary
    assert usual["result (jit)"].remedy == "write it as a function: def f(x): return ..."
    assert probe(*pair, [x], modes=("jit",))["result (jit)"].status == "error"


def ms_draw(x: Any) -> Any:
    return x + np.random.rand()


def test_a_number_frozen_at_compile_time() -> None:
    report = probe(lambda x: x + np.random.rand(), ms_draw, [f(2, 3)])
    assert report["result (pynative)"].status == "ok"
    assert report["repeatable (jit)"].status == "failed"
    assert "draws once, at compile time" in report["repeatable (jit)"].remedy


def ms_try(x: Any) -> Any:
    try:
        return ops.abs(x)
    except ValueError:
        return x


def test_a_failed_compile_leaves_no_litter_and_a_healthy_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MS_OM_PATH", raising=False)
    report = probe(torch.abs, ms_try, [f(2, 3)], modes=("pynative", "jit", "graph"))
    assert {"result (jit)", "result (graph)"} <= bad(report)
    assert "Try" in report["result (jit)"].found
    assert "works in pynative and not compiled" in report["result (jit)"].remedy
    assert list(tmp_path.iterdir()) == []
    assert "MS_OM_PATH" not in os.environ
    assert probe(torch.abs, ops.abs, [f(2, 3)], modes=("jit",)).ok


# Structures, several outputs, nets


def test_several_outputs_and_nested_inputs() -> None:
    def torch_two(x: Any) -> Any:
        return x.exp(), {"a": [x * 2, x.argmax()]}

    def ms_two(x: Any) -> Any:
        return x.exp(), {"a": [x * 3, x.argmax().astype(ms.int64)]}

    report = probe(torch_two, ms_two, [f(2, 3)], modes=EAGER, extremes=False)
    assert report["result (pynative)"].found == "MindSpore is 1.5 times PyTorch"
    structure = probe(torch_two, lambda x: x.exp(), [f(2, 3)], modes=EAGER)["result (pynative)"]
    assert "MindSpore returns one array of shape (2, 3), PyTorch a tuple of 2" in structure.summary
    assert probe(torch.cat, ops.cat, [[f(2, 3), f(2, 3)]], modes=EAGER).ok


def test_a_wrong_gradient_is_found() -> None:
    def ms_half(x: Any) -> Any:
        return ops.stop_gradient(x) * x

    report = probe(torch.square, ms_half, [f(3, 4)], modes=EAGER, extremes=False)
    assert bad(report) == {"gradients (pynative): input 0"}
    assert report["gradients (pynative): input 0"].found == "MindSpore is 0.5 times PyTorch"


def test_unlike_weights_are_told_before_results() -> None:
    report = probe(torch.nn.Linear(3, 2), nn.Dense(3, 2), [f(4, 3)], modes=EAGER)
    assert report["parameters"].status == "failed"
    assert "weight / weight" in report["parameters"].summary
    assert report["parameters"].remedy == "msnb.copy_weights(torch_net, ms_net)"
    unpaired = probe(torch.nn.Linear(3, 2), nn.Dense(3, 2, has_bias=False), [f(4, 3)], modes=EAGER)
    assert unpaired["parameters"].status == "error"


def test_nets_come_back_as_they_were() -> None:
    torch_net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    ms_net = nn.SequentialCell(nn.Dense(4, 3), nn.BatchNorm1d(3)).set_train()
    ms_net[0].set_train(False)
    with_weights(torch_net, ms_net)
    torch_net(torch.ones(2, 4)).sum().backward()
    torch_net[1].reset_running_stats()
    torch_net[0].eval()

    def state() -> Any:
        return (
            {k: v.clone() for k, v in torch_net.state_dict().items()},
            [p.grad.clone() for p in torch_net.parameters()],
            [layer.training for layer in torch_net.modules()],
            {n: p.asnumpy().copy() for n, p in ms_net.parameters_and_names()},
            [bool(cell.training) for _, cell in ms_net.cells_and_names()],
            ms.get_context("mode"),
            torch.get_rng_state(),
        )

    before = state()

    def reached(x: Any) -> Any:  # a net that a function has at hand
        return ms_net(x)

    for torch_fn, ms_fn, modes, grads in (
        (torch_net, ms_net, ("pynative",), True),
        (lambda x: torch_net(x), reached, ("pynative", "graph"), False),
    ):
        report = probe(torch_fn, ms_fn, [f(6, 4)], modes=modes, grads=grads)
        assert report["result (pynative)"].status == "ok", report
        after = state()
        assert all(torch.equal(before[0][k], after[0][k]) for k in before[0])
        assert all(torch.equal(a, b) for a, b in zip(before[1], after[1], strict=True))
        assert before[2] == after[2]
        assert all((before[3][n] == after[3][n]).all() for n in before[3])
        assert before[4:6] == after[4:6]
        assert torch.equal(before[6], after[6])


# Bad input


def torch_inside(x: Any) -> Any:
    return torch.exp(x)


X = [np.ones((2, 3), np.float32)]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "says"),
    [
        ((ops.exp, torch.exp, X), {}, TypeError, "torch_fn is exp of MindSpore, torch_fn belongs"),
        ((torch.exp, torch.exp, X), {}, TypeError, "ms_fn is exp of PyTorch, ms_fn belongs to Mi"),
        ((torch.exp, torch.nn.ReLU(), X), {}, TypeError, r"the order is probe\(torch_fn, ms_fn"),
        ((nn.ReLU(), nn.ReLU(), X), {}, TypeError, "torch_fn is ReLU of MindSpore"),
        ((torch.exp, torch_inside, X), {}, TypeError, "ms_fn computes with PyTorch"),
        ((torch.Tensor.exp, torch.Tensor.exp, X), {}, TypeError, "ms_fn is exp of PyTorch"),
        ((torch.exp, lambda x: torch.ones(2), X), {}, TypeError, "ms_fn returned a torch tensor"),
        ((torch.exp, lambda x: None, X), {}, TypeError, "ms_fn returned None.*is a return missing"),
        ((lambda x: None, ops.exp, X), {}, TypeError, "torch_fn returned None"),
        ((torch.exp, lambda x: "a", X), {}, TypeError, "ms_fn returned str, expected tensors"),
        ((None, ops.exp, X), {}, TypeError, "torch_fn is NoneType, which cannot be called"),
        ((torch.exp, 3, X), {}, TypeError, "ms_fn is int, which cannot be called"),
        ((torch.nn.Linear, nn.Dense(3, 2), X), {}, TypeError, r"is the class Linear, not a net"),
        ((torch.exp, ops.exp, X[0]), {}, TypeError, r"for one array write \[x\]"),
        ((torch.exp, ops.exp, {"x": X[0]}), {}, TypeError, "not a dict of x; for keywords wrap"),
        ((torch.exp, ops.exp, X), {"modes": ["fast"]}, ValueError, "pynative, jit, graph, not 'fa"),
        ((torch.exp, ops.exp, X), {"modes": "jit"}, TypeError, r"write modes=\['jit'\]"),
        ((torch.exp, ops.exp, X), {"modes": []}, ValueError, "at least one of pynative"),
        ((torch.exp, ops.exp, X), {"reference": 3}, TypeError, "reference is a function on fl"),
        ((torch.exp, ops.exp, X), {"sweep": {}}, ValueError, "an empty sweep probes nothing"),
        ((torch.exp, ops.exp, X), {"sweep": {"k": []}}, ValueError, "'k' has no values"),
        ((torch.exp, ops.exp, X), {"sweep": {"k": [1, 1]}}, ValueError, "a value twice"),
        ((torch.exp, ops.exp, X), {"sweep": {"k": "ab"}}, TypeError, "takes a list of values"),
        ((torch.exp, ops.exp, X), {"sweep": [1]}, TypeError, "maps each keyword"),
        (
            (lambda k: 3, lambda k: ops.exp, X), {"sweep": {"k": [1]}}, TypeError,
            r"torch_fn\(k=1\) makes the thing to probe.*not int",
        ),
        (
            (torch.nn.ReLU(), nn.ReLU(), X), {"isolate": True}, TypeError,
            "a ReLU cannot travel: give a function that builds it",
        ),
    ],
)  # fmt: skip
def test_bad_input(arguments: Any, options: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        probe(*arguments, **{"modes": EAGER, **options})


# Sweeps


def conv_pair(torch_side: bool) -> Any:
    def make(kernel: int, stride: int, size: int) -> Any:
        if torch_side:
            return lambda x, w: F.conv2d(x, w, stride=stride, padding=kernel // 2)
        return lambda x, w: ops.conv2d(x, w, stride=stride, pad_mode="same")

    return make


def conv_inputs(kernel: int, stride: int, size: int) -> list[Array]:
    return [f(1, 2, size, size), f(2, 2, kernel, kernel)]


def test_a_sweep_finds_where_same_padding_agrees() -> None:
    report = probe(
        conv_pair(True), conv_pair(False), conv_inputs,
        sweep={"kernel": [2, 3], "stride": [1, 2], "size": [6, 7]}, grads=False,
    )  # fmt: skip
    # TensorFlow's rule: total padding (ceil(n / s) - 1) * s + k - n, the smaller half first;
    # PyTorch pads kernel // 2 on each side
    for check in report:
        kernel, stride, size = (int(part.split("=")[1]) for part in check.id.split(", "))
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        pads = (total // 2, total - total // 2)
        last = (size + 2 * (kernel // 2) - kernel) // stride * stride + kernel
        used = last - size - kernel // 2  # of PyTorch's padding behind, what a window reaches
        assert (check.status == "ok") == (pads == (kernel // 2, max(used, 0))), check
    figure = report.plot()
    assert [axes.get_title() for axes in figure.axes] == ["kernel=2", "kernel=3"]
    assert figure.axes[1].get_xlabel() == "size"
    assert [text.get_text() for text in figure.axes[1].texts] == ["=", "=", "≠", "="]
    assert "agree" in figure.get_suptitle()


def test_a_sweep_in_which_one_side_refuses() -> None:
    def ms_side(k: int) -> Any:
        if k > 1:
            raise ValueError("too large")
        return lambda x: x * k

    report = probe(lambda k: lambda x: x * k, ms_side, X, sweep={"k": [1, 2]})
    assert report["k=1"].status == "ok"
    assert report["k=2"].found == "ValueError: too large"


# A process of its own


def dies(x: Any) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def aborts(x: Any) -> Any:
    os.abort()


def sleeps(x: Any) -> Any:
    time.sleep(100)


def torch_table(i: Any) -> Any:
    return F.embedding(i, torch.arange(12.0).reshape(6, 2))


def ms_table(i: Any) -> Any:
    return ops.gather(ms.Tensor(np.arange(12, dtype=np.float32).reshape(6, 2)), i, 0)


@pytest.mark.slow
def test_isolated_a_crash_is_a_row() -> None:
    for function, says in ((dies, "SIGSEGV"), (aborts, "SIGABRT")):
        report = probe(torch.abs, function, X, isolate=True)
        assert bad(report) == {"process"}
        assert says in report["process"].summary
    hung = probe(torch.abs, sleeps, X, isolate=True, timeout=10)
    assert "did not return within 10 s" in hung["process"].summary
    net = nn.Dense(3, 2)
    with pytest.raises(TypeError, match="create that object inside the function"):
        probe(torch.abs, lambda x: net(x), X, isolate=True)
    with pytest.raises(TypeError, match="ms_fn returned None"):
        probe(torch.abs, lambda x: None, X, isolate=True)


@pytest.mark.slow
def test_isolated_with_one_warm_process() -> None:
    from msnb.parity import operators

    for _ in range(3):
        assert probe(torch.abs, ops.abs, X, isolate=True, modes=EAGER).ok
    worker = operators._worker
    before = worker.started
    row = probe(torch_table, ms_table, [np.array([1, 2])], isolate=True, modes=EAGER)[
        "extreme: negative index"
    ]
    assert row.summary == "PyTorch raises IndexError, MindSpore returns a value"
    assert worker.started == before


def test_attempt_gives_the_exception_as_a_value() -> None:
    raised = attempt(int, "four")
    assert (raised.type, "four" in raised.message) == ("ValueError", True)


def test_a_compiled_function_still_sees_the_parameters_after_a_probe():
    """What is given back is written in place: compiled code keeps the memory it has seen."""
    import mindspore as ms
    from mindspore import nn

    torch_net, ms_net = torch.nn.BatchNorm1d(3), nn.BatchNorm1d(3).set_train()

    def mean():
        return ms_net.moving_mean * 1

    compiled = ms.jit(mean)
    assert compiled().asnumpy().tolist() == [0, 0, 0]
    probe(torch_net, ms_net, [np.eye(3, dtype=np.float32)], modes=["pynative"])
    assert ms_net.moving_mean.asnumpy().tolist() == [0, 0, 0]
    ms.ops.assign(ms_net.moving_mean, ms.Tensor([1.0, 2.0, 3.0]))
    assert compiled().asnumpy().tolist() == [1, 2, 3]

"""Every twin net: exported, loaded in other processes, bit by bit the same; or refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import nets_to_export
import numpy as np
import pytest
import torch
from twins import TWINS, make

from msnb import isolate
from msnb.deploy import check_export, export, running
from msnb.parity.calls import leaves

# What MindSpore 2.10 refuses or gets wrong: format or "any batch", then the words of the row.
ANY_BATCH = {
    "gru": ("cannot run for batch 9", "CPU kernel op [Default/Add-op32] resize failed"),
    "transformer": ("cannot run for batch 4", "a check that raises on shapes"),
}
ONNX = {
    "mlp": ("refuses this net", "has no Erf"),
    "bn_cnn": ("refuses this net", "has no AdaptiveAvgPool2D"),
    "unet": ("cannot run", "Attribute output_shape has incorrect size"),
    "lstm": ("cannot run", "Dimension of input 1 must be 1 instead of 0"),
    "gru": ("refuses this net", "has no make_list"),
    "vae": ("refuses this net", "has no Elu"),
    "group_norm": ("refuses this net", "has no GroupNorm"),
}


def twin_inputs(name: str, twin: Any) -> tuple[np.ndarray[Any, Any], ...]:
    count = nets_to_export.INPUTS.get(name, 1)
    return tuple(np.asarray(value) for value in twin.batch[:count])


def other_rows(inputs: tuple[np.ndarray[Any, Any], ...], rows: int) -> list[np.ndarray[Any, Any]]:
    first = inputs[0].shape[0]
    rng = np.random.default_rng(rows)
    return [
        a[rng.integers(0, first, rows)] if a.shape[0] == first else a  # scale has one row
        for a in inputs
    ]


def live(net: Any, inputs: Any) -> list[np.ndarray[Any, Any]]:
    """The net's own outputs, by MindSpore alone."""
    flag = net.training
    net.set_train(False)
    found = net(*[ms.Tensor(a) for a in inputs])
    net.set_train(flag)
    return [leaf.asnumpy() for leaf in leaves(found)]


def run_in_mode(path: str, batches: Any, mode: int) -> Any:
    """MindSpore's own calls alone; in a process that has never seen the net."""
    import mindspore
    from mindspore import nn

    mindspore.set_context(mode=mode)
    model = nn.GraphCell(mindspore.load(path))
    found = []
    for inputs in batches:
        value = model(*[mindspore.Tensor(a) for a in inputs])
        value = value if isinstance(value, tuple) else (value,)
        found.append([leaf.asnumpy() for leaf in value])
    return found


@pytest.fixture(scope="module")
def reader():
    """One process that loads files; it never imports the nets."""
    with isolate.Worker() as worker:
        yield worker


def round_trip(name: str, folder: Path, reader: Any) -> None:
    twin = make(name)
    inputs = twin_inputs(name, twin)
    rows = inputs[0].shape[0]
    report = export(twin.mindspore, inputs, folder / name)
    assert report.ok, str(report)
    batches, file = [inputs], folder / f"{name}.mindir"
    report = export(twin.mindspore, inputs, folder / f"{name} any", dynamic={0: "batch"})
    if name in ANY_BATCH:
        check = report["mindir"]
        assert check.status == "failed", str(report)
        assert all(words in f"{check.summary} {check.found}" for words in ANY_BATCH[name])
        assert check.remedy == "leave out dynamic: one file for each size that is needed"
        assert not (folder / f"{name} any.mindir").exists()
    else:
        assert report.ok, str(report)
        batches += [other_rows(inputs, rows + 3), other_rows(inputs, 1)]
        file = folder / f"{name} any.mindir"
    assert twin.mindspore.training  # given back as it was
    want = [live(twin.mindspore, batch) for batch in batches]
    for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
        found = reader.run(run_in_mode, str(file), batches, mode).result()
        for have, need in zip(found, want, strict=True):
            assert [h.shape for h in have] == [n.shape for n in need]
            for h, n in zip(have, need, strict=True):
                if mode == ms.PYNATIVE_MODE:
                    assert h.tobytes() == n.tobytes()
                np.testing.assert_allclose(h, n, rtol=1e-6, atol=1e-6)
    twin.torch.eval()
    for batch, have in zip(batches, found, strict=True):
        with torch.no_grad():
            theirs = leaves(twin.torch(*[torch.from_numpy(a) for a in batch]))
        for h, t in zip(have, theirs, strict=True):
            np.testing.assert_allclose(h, t.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_every_twin_survives_the_round_trip(name, tmp_path, reader):
    round_trip(name, tmp_path, reader)


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_onnx_agrees_within_1e_5_or_says_why_not(name, tmp_path):
    import onnxruntime

    twin = make(name)
    inputs = twin_inputs(name, twin)
    check = export(twin.mindspore, inputs, tmp_path / name, "onnx")["onnx"]
    file = tmp_path / f"{name}.onnx"
    if name in ONNX:
        assert check.status == "failed"
        assert all(words in f"{check.summary} {check.found}" for words in ONNX[name]), check
        assert not any(tmp_path.iterdir())
        return
    assert check.status == "ok", check
    assert f"fixed at {inputs[0].shape[0]} rows" in check.summary
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    found = session.run(None, dict(zip(names, inputs, strict=True)))
    for have, need in zip(found, live(twin.mindspore, inputs), strict=True):
        assert have.shape == need.shape
        assert np.abs(have - need).max() <= 1e-5 * np.abs(need).max()


def test_the_twins_are_all_here():
    assert len(TWINS) >= 12
    assert set(ANY_BATCH) | set(ONNX) <= set(TWINS)


@pytest.mark.slow
def test_a_file_of_mindspores_own_gives_the_wrong_number_of_rows(tmp_path):
    """Why shapes come before values: nothing is raised, and broadcasting would hide it."""
    twin = make("gru")
    (x,) = twin_inputs("gru", twin)
    twin.mindspore.set_train(False)
    path = tmp_path / "gru"
    dynamic = ms.Tensor(shape=[None, *x.shape[1:]], dtype=ms.float32)
    ms.export(twin.mindspore, dynamic, file_name=str(path), file_format="MINDIR")
    model = running.load(f"{path}.mindir")
    model(ms.Tensor(x))
    assert model(ms.Tensor(x[:1])).shape == (4, 3)  # one row was given
    assert live(twin.mindspore, [x[:1]])[0].shape == (1, 3)


def test_check_export_of_a_twin_against_pytorch(tmp_path):
    twin = make("lenet")
    (x,) = twin_inputs("lenet", twin)
    export(twin.mindspore, x, tmp_path / "a", dynamic={0: "batch"}).require()
    report = check_export(tmp_path / "a.mindir", twin.mindspore, [x, x[:3]], torch_net=twin.torch)
    assert report.ok, str(report)
    assert [check.id for check in report] == [
        "file",
        "inference",
        "parameters",
        "stored outputs",
        "batch 0 (4 rows)",
        "batch 1 (3 rows)",
        "negated",
        "zeros",
        "again",
        "1 row",
        "9 rows",
        "repeatable",
        "PyTorch: batch 0 (4 rows)",
        "PyTorch: batch 1 (3 rows)",
    ]
    assert report["batch 0 (4 rows)"].summary == "bit by bit"

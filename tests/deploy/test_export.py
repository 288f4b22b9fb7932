"""export(): what it writes, what it leaves alone, what it refuses and in which words."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import onnxruntime
import pytest
import torch
from mindspore import nn, ops
from nets_to_export import Small, expected, images

import msnb
from msnb.deploy import export, graphfile, load_exported, manifest, refusals, running


def loaded(path: Path) -> Any:
    """By MindSpore alone."""
    return nn.GraphCell(ms.load(str(path)))


class Cell(nn.Cell):
    """A net made of one function."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(3, 3, weight_init="ones", bias_init="zeros")
        self.count, self.seen = 0, []
        self.layers = [nn.Dense(3, 3), nn.Dense(3, 3)]


def cell(construct: Any) -> nn.Cell:
    return type("Net", (Cell,), {"construct": construct})()


X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def same(self, x):
    return x


def plus_one(self, x):
    return x + 1


def double(self, x):
    return x.astype(ms.float32) * 2


def two_outputs(self, a, b):
    return a + 1, ops.concat((a, b), 0)


def two_rows(self, x):
    return x.reshape(2, 3) * 2


# What it writes


def test_the_file_gives_what_the_formulas_give(exported):
    net, folder = exported
    x = images()
    np.testing.assert_allclose(
        loaded(folder / "fixed.mindir")(ms.Tensor(x)).asnumpy(), expected(net, x), atol=1e-5
    )
    for rows in (1, 3, 11):
        x = images(rows, seed=rows)
        np.testing.assert_allclose(
            loaded(folder / "any.mindir")(ms.Tensor(x)).asnumpy(), expected(net, x), atol=1e-5
        )


def test_the_manifest_says_what_goes_in_and_out(exported):
    folder = exported[1]
    record = json.loads((folder / "any.mindir.json").read_text(encoding="utf-8"))
    assert record["inputs"] == [
        {"name": "x", "shape": ["batch", 1, 4, 4], "dtype": "float32", "layout": "NCHW"}
    ]
    assert record["outputs"] == [
        {"name": "output", "shape": ["batch", 3], "dtype": "float32", "layout": ""}
    ]
    content = (folder / "any.mindir").read_bytes()
    import hashlib

    assert record["sha256"] == hashlib.sha256(content).hexdigest()
    assert record["bytes"] == len(content)
    assert record["mindspore"] == ms.__version__
    assert record["device"] == "CPU"
    assert record["net"] == "Small"
    # conv 2*1*9 + 2, norm 4 * 2, dense 32 * 3 + 3
    assert record["parameters"] == 18 + 2 + 8 + 96 + 3


def test_the_stored_outputs_are_those_of_the_seeded_input(exported):
    net, folder = exported
    known = manifest.read(folder / "fixed.mindir")
    (x,) = known.seeded()
    assert x.shape == (4, 1, 4, 4)
    assert x.dtype == np.float32
    low, high = images().min(), images().max()
    assert low <= x.min() < x.max() <= high
    (kept,) = known.proof["outputs"]
    assert kept["shape"] == [4, 3]
    np.testing.assert_allclose(kept["first"], expected(net, x).ravel()[:16], atol=1e-5)


def test_the_net_is_given_back_as_it_was():
    net = Small()
    net.set_train()
    net.drop.set_train(False)  # a layer frozen by hand
    before = {p.name: p.asnumpy().copy() for p in net.get_parameters()}
    level = ms.get_context("jit_syntax_level")
    try:
        assert export(net, images(), "kept").ok
        assert net.training
        assert not net.drop.training
        assert net.norm.training
        assert all((before[p.name] == p.asnumpy()).all() for p in net.get_parameters())
        assert ms.get_context("jit_syntax_level") == level
    finally:
        for name in ("kept.mindir", "kept.mindir.json"):
            Path(name).unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_second_export_has_the_attributes_of_today():
    """MindSpore's own second export is the first one's graph again, without a word."""
    net, x = Small(), images()
    assert export(net, x, "first").ok
    net.scale = 5.0
    assert export(net, x, "second").ok
    found = loaded(Path("second.mindir"))(ms.Tensor(x)).asnumpy()
    np.testing.assert_allclose(found, expected(net, x), atol=1e-4)


@pytest.mark.slow
def test_mindspores_own_second_export_is_old():
    net, x = Small(), images()
    net.set_train(False)
    ms.export(net, ms.Tensor(x), file_name="own1", file_format="MINDIR")
    net.scale = 5.0
    ms.export(net, ms.Tensor(x), file_name="own2", file_format="MINDIR")
    old = loaded(Path("own2.mindir"))(ms.Tensor(x)).asnumpy()
    np.testing.assert_allclose(old * 5, expected(net, x), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("a", "a.mindir"),
        ("a.mindir", "a.mindir"),
        ("a.MindIR", "a.mindir"),
        ("a.mindir.mindir", "a.mindir"),
        ("a.onnx", "a.mindir"),
        ("v1.5", "v1.5.mindir"),
        ("deep/er/模型 1", "deep/er/模型 1.mindir"),
    ],
)
def test_names(name, file):
    from msnb.deploy.exporting import _target

    assert f"{_target(name)}.mindir" == file


@pytest.mark.parametrize(
    "format", ["mindir", "MINDIR", ".MindIR", ["mindir"], ("MINDIR", "mindir")]
)
def test_formats_in_any_case(format):
    from msnb.deploy.exporting import _formats

    assert _formats(format) == ("MINDIR",)


@pytest.mark.slow
def test_a_folder_with_spaces_and_chinese_is_made_and_left_tidy():
    folder = Path("新 folder") / "v[1]*"
    assert export(cell(plus_one), X, folder / "a b").ok
    assert sorted(p.name for p in folder.iterdir()) == ["a b.mindir", "a b.mindir.json"]
    mask = os.umask(0)
    os.umask(mask)
    assert (folder / "a b.mindir").stat().st_mode & 0o777 == 0o666 & ~mask
    assert load_exported(folder / "a b")(ms.Tensor(X)).asnumpy().tolist() == (X + 1).tolist()


@pytest.mark.slow
def test_several_inputs_and_outputs_with_axes_of_their_own():
    net = cell(two_outputs)
    b = np.ones((5, 3), np.float32)
    axes = {"a": {0: "rows"}, "b": {0: "more"}}
    assert export(net, (X, b), "two", dynamic=axes).ok
    known = manifest.read(Path("two.mindir"))
    assert [p.shape for p in known.inputs] == [("rows", 3), ("more", 3)]
    assert [p.shape for p in known.outputs] == [("rows", 3), ("?", 3)]
    first, second = load_exported("two")(ms.Tensor(X[:1]), ms.Tensor(b))
    assert first.asnumpy().tolist() == (X[:1] + 1).tolist()
    assert second.asnumpy().tolist() == [*X[:1].tolist(), *b.tolist()]


@pytest.mark.parametrize(
    "dtype", ["bool", *(pytest.param(d, marks=pytest.mark.slow) for d in ("float16", "int64"))]
)
def test_dtypes(dtype):
    x = (X % 2 if dtype == "bool" else X).astype(dtype)
    assert export(cell(double), x, "typed").ok
    assert manifest.read(Path("typed.mindir")).inputs[0].dtype == dtype
    found = load_exported("typed")(ms.Tensor(x))
    assert found.asnumpy().tolist() == (x.astype(np.float32) * 2).tolist()


@pytest.mark.slow
def test_a_torch_example_will_do():
    assert export(cell(double), torch.from_numpy(X), "t").ok


# What it refuses: rows, not stacks


def asnumpy(self, x):
    return self.fc(x) * float(np.max(x.asnumpy()))


def tolist(self, x):
    return x * x.tolist()[0][0]


def counter(self, x):
    self.count = self.count + 1
    return x * 1


def caught(self, x):
    try:
        y = self.fc(x)
    except ValueError:
        y = x
    return y


def walrus(self, x):
    return (y := self.fc(x)) + y


def imports(self, x):
    import math

    return x * math.pi


def new_tensor(self, x):
    return ms.Tensor(x) + 1


def matching(self, x):
    match x.shape[0]:
        case 2:
            return x
    return x + 1


def python_list(self, x):
    for layer in self.layers:
        x = layer(x)
    return x


def frozen_random(self, x):
    return x * random.random()


def grows(self, x):
    self.seen.append(1)
    return x * len(self.seen)


def in_place(self, x):
    y = x * 1
    y.add_(1)
    return y


def gives_none(self, x):
    return x, None


def gives_size(self, x):
    return {"x": x, "rows": x.shape[0]}


def wrong_sizes(self, x):
    return ops.matmul(x, x)


IDIOMS = [
    (asnumpy, "refuses this net", "NumPy in construct", "ops.exp(x) for np.exp(x.asnumpy())"),
    (tolist, "refuses this net", "NumPy in construct", "stay in tensors"),
    (counter, "refuses this net", "self.count = ... in construct", "make it a Parameter"),
    (caught, "refuses this net", "try/except", "test the condition with an if"),
    (walrus, "refuses this net", "the walrus :=", "a line of its own"),
    (imports, "refuses this net", "an import in construct", "at the top of the file"),
    (new_tensor, "refuses this net", "such as Tensor(x)", "leave it out"),
    (matching, "refuses this net", "Match in construct", "plain assignments"),
    (python_list, "refuses this net", "layers in a Python list", "nn.CellList"),
    (
        frozen_random,
        "gives two answers",
        "random numbers, the clock",
        "draw random numbers outside",
    ),
    (grows, "gives two answers", "state that a call changes", "keep state in a Parameter"),
    (in_place, "gives other values than the net", "plus 1", "x.add_(1)"),
    (gives_none, "the net itself cannot be run", "output 1 is no tensor", "return tensors alone"),
    (
        gives_size,
        "the net itself cannot be run",
        "output rows is no tensor",
        "return tensors alone",
    ),
    (wrong_sizes, "the net itself cannot be run", "", ""),
]


@pytest.mark.parametrize(("construct", *"sfr"), IDIOMS, ids=lambda v: getattr(v, "__name__", ""))
def test_an_idiom_that_no_file_can_hold(construct, s, f, r):
    level = ms.get_context("jit_syntax_level")
    report = export(cell(construct), X, "idiom")
    (check,) = report
    assert (check.id, check.status) == ("mindir", "failed")
    assert s in check.summary
    assert f in check.found
    assert r in check.remedy
    assert "C++" not in str(report)
    assert "----" not in str(report)
    assert not any(Path().iterdir())  # neither a file nor a workplace nor rank_0
    assert ms.get_context("jit_syntax_level") == level
    with pytest.raises(AssertionError, match="required, but not ok"):
        report.require()


def test_an_idiom_that_is_not_known_keeps_its_first_line():
    assert refusals.explain("- Frame:\n----\nSomething new.\n") == (
        "Something new.",
        "find the line of construct that it is about: compile the net alone, "
        "mindspore.jit(net.construct)(x), and halve it",
    )


def test_a_layer_that_stays_in_training_is_found():
    class Always(nn.Cell):
        def construct(self, x):
            return ops.dropout(x, 0.5, True)

    # it answers differently each time; where it does not, the graph tells
    (check,) = export(Always(), X, "always")
    assert "two answers" in check.summary


@pytest.mark.slow
def test_a_refusal_leaves_the_old_file_alone():
    assert export(cell(plus_one), X, "old").ok
    before = {p.name: p.read_bytes() for p in Path().iterdir()}
    assert not export(cell(walrus), X, "old").ok
    assert {p.name: p.read_bytes() for p in Path().iterdir()} == before


def test_a_net_whose_sizes_are_built_in_has_no_dynamic_file():
    net = cell(two_rows)
    (check,) = export(net, X, "fixed", dynamic={0: "batch"})
    assert check.status == "failed"
    assert "the net itself cannot be run for batch 5" in check.summary


@pytest.mark.slow
def test_onnx_of_one_size_next_to_mindir():
    net = Small()
    net.fc.weight.set_data(ms.Tensor(np.ones((3, 32), np.float32)))
    report = export(net, images(), "small", ("MindIR", "ONNX"), dynamic={0: "batch"})
    assert report["mindir"].status == "ok", str(report)
    assert report["onnx"].status == "ok", str(report)
    assert "fixed at 4 rows" in report["onnx"].summary
    assert manifest.read(Path("small.onnx")).inputs[0].shape == (4, 1, 4, 4)
    session = onnxruntime.InferenceSession("small.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: images()})
    np.testing.assert_allclose(found, expected(net, images()), rtol=1e-5, atol=1e-4)


def test_onnx_without_onnxruntime_is_written_and_not_called_checked(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    report = export(Small(), images(), "small", "onnx")
    assert report["onnx"].status == "skipped"
    assert "not checked: onnxruntime is not installed (pip install" in report["onnx"].summary
    assert not report.ok
    assert Path("small.onnx").is_file()


def test_air_is_for_ascend():
    (check,) = export(cell(same), X, "a", "AIR")
    assert check.status == "failed"
    assert "AIR is written on Ascend alone, and this process computes on CPU" in check.summary


# Nets that a first user brings


class Counting(nn.Cell):
    """A counter that no output depends on."""

    def __init__(self):
        super().__init__()
        self.n = ms.Parameter(ms.Tensor(5.0), name="n", requires_grad=False)

    def construct(self, x):
        ops.assign(self.n, self.n + 1)
        return x * 2


def test_trials_do_not_move_the_state_in_the_file():
    net = Counting()
    assert export(net, X, "counting").ok
    assert float(net.n.value()) == 5.0
    (stored,) = graphfile.read(Path("counting.mindir")).parameters
    assert np.frombuffer(bytes(stored.data), np.float32) == 5.0


def squeezed(self, x):
    return ops.squeeze(x)


def test_an_output_that_loses_an_axis_for_one_row_is_refused():
    (check,) = export(cell(squeezed), X, "squeezed", dynamic={0: "batch"})
    assert check.status == "failed"
    assert "output has the shape (3,) for batch 1 and (2, 3) for batch 2" in check.summary
    assert check.remedy == "where it is squeeze(), name the axis: x.squeeze(1)"
    assert not any(Path().iterdir())


def positives(self, x):
    return ops.nonzero(x > 0)


def test_a_size_that_the_values_decide_is_free():
    assert export(cell(positives), X - 3, "positives").ok
    assert manifest.read(Path("positives.mindir")).outputs[0].shape == ("?", 2)
    found = load_exported("positives")(ms.Tensor(np.float32([[1, -1, -1], [-1, -1, 1]])))
    assert found.asnumpy().tolist() == [[0, 0], [1, 2]]


def keyed(self, x):
    return {"logits": x + 1, "hidden": x * 2}


def test_what_the_file_has_otherwise_than_the_net_is_told():
    (check,) = export(cell(keyed), X, "keyed")
    assert "0 of the net's 12 parameters" in check.summary  # fc is not used
    assert check.summary.endswith("; in place of a dict the file gives a tuple: logits, hidden")
    assert len(load_exported("keyed")(ms.Tensor(X))) == 2


def test_a_class_without_a_source_file_is_refused_in_a_row():
    typed: dict[str, Any] = {"nn": nn, "__name__": __name__}
    exec("class Typed(nn.Cell):\n    def construct(self, x):\n        return x * 2\n", typed)
    (check,) = export(typed["Typed"](), X, "typed")
    assert check.status == "failed"
    assert "typed at a prompt" in check.found
    assert ".py file" in check.remedy
    assert not any(Path().iterdir())


def nothing(self, x):
    return ()


def test_a_net_that_returns_nothing_proves_nothing():
    (check,) = export(cell(nothing), X, "nothing")
    assert check.status == "failed"
    assert "returns nothing" in check.summary


def into_weights(self, x):
    return self.fc(x)


def test_a_dtype_or_an_axis_that_the_weights_do_not_take():
    (check,) = export(cell(into_weights), X.astype(np.float64), "a")
    assert check.found == "a dtype of the example's that does not meet the weights' dtype"
    (check,) = export(cell(into_weights), X, "a", dynamic={1: "width"})
    assert "cannot be run for width 6" in check.summary
    assert check.remedy == "leave width out of dynamic: one file for each size that is needed"


@pytest.mark.parametrize(
    ("a", "b", "good"),
    [
        (np.float32([1, 2]), np.float32([1, 2.0000002]), True),
        (np.float32([1, 2]), np.float32([1, 2.001]), False),
        (np.float32([np.nan]), np.float32([np.nan]), True),
        (np.float32([1]), np.float32([np.nan]), False),
        (np.float32([1]), np.float32([1, 1]), False),
        (np.int32([1]), np.int32([2]), False),
        (np.float32([1]), np.float64([1]), False),
    ],
)
def test_the_last_bit_is_no_second_answer(a, b, good):
    # MindSpore's std of 7 rows differs in the last bit from one call to the next
    assert running.repeats([("output", a)], [("output", b)]) is good


# Arguments: each slip its sentence

SLIPS = [
    ({"net": torch.nn.Linear(3, 3)}, TypeError, "a mindspore nn.Cell, not a net of PyTorch's"),
    ({"net": nn.Dense}, TypeError, "was given the class Dense: make one first, net = Dense(...)"),
    ({"net": len}, TypeError, "not a builtin_function_or_method"),
    ({"example": []}, ValueError, "example holds no input"),
    ({"example": 3.0}, TypeError, "not a float; a number becomes one with mindspore.Tensor"),
    ({"example": "x"}, TypeError, "not a str"),
    ({"example": {"x": X}}, TypeError, "not a dict; give a tuple of its values, in construct's"),
    ({"example": X.tolist()}, TypeError, "not a list; numbers in lists become one with numpy"),
    ({"example": (X, None)}, TypeError, "not a NoneType; leave out arguments that construct has"),
    (
        {"example": np.float32(3), "dynamic": {0: "batch"}},
        ValueError,
        "axis 0 of an input of shape (), which has no axis",
    ),
    ({"example": np.zeros((0, 3), np.float32)}, ValueError, "empty, of shape (0, 3)"),
    ({"example": np.float32([[np.nan, 1, 2]])}, ValueError, "holds NaN or infinity"),
    ({"example": X.astype(np.complex64)}, ValueError, "takes real numbers"),
    (
        {"example": lambda: ms.Tensor(shape=[None, 3], dtype=ms.float32)},
        ValueError,
        "has no values, only a shape: give an example with values, and name the axes of any size: "
        'dynamic={0: "batch"}',
    ),
    ({"formats": "pth"}, ValueError, "formats are mindir, onnx, air, not 'pth'"),
    ({"formats": []}, TypeError, "formats is a list of formats"),
    ({"formats": None}, TypeError, "formats is a list of formats"),
    ({"name": ""}, TypeError, "name is a path"),
    ({"name": 7}, TypeError, "not 7"),
    ({"name": X, "example": "a"}, TypeError, "not a ndarray; the order is export(net, example, "),
    ({"name": "folder/"}, ValueError, "the path of a file"),
    ({"name": "net.ckpt"}, ValueError, ".ckpt is no format of export"),
    ({"dynamic": "batch"}, TypeError, "dynamic maps an axis to a name"),
    ({"dynamic": {2: "time"}}, ValueError, "axis 2 of an input of shape (2, 3)"),
    ({"dynamic": {"y": {0: "b"}}}, ValueError, "names the input 'y'; the net's are x"),
    ({"dynamic": {0: None}}, TypeError, 'a name such as "batch", not None'),
    ({"dynamic": {1.5: "b"}}, TypeError, "a whole number, not 1.5"),
    (
        {"dynamic": {0: "n", -2: "m"}},
        ValueError,
        "gives axis 0 two names, 'n' and 'm': give it one",
    ),
    ({"dynamic": {0: "n", 1: "n"}}, ValueError, "two axes 'n' that have the sizes 2 and 3"),
]


@pytest.mark.parametrize(("change", "error", "sentence"), SLIPS, ids=[s[2][:30] for s in SLIPS])
def test_a_slip_gets_a_sentence(change, error, sentence):
    given = {"net": cell(same), "example": X, "name": "a", **change}
    if callable(given["example"]):
        given["example"] = given["example"]()
    with pytest.raises(error) as caught:
        export(**given)
    assert sentence in str(caught.value)
    assert not any(Path().iterdir())


def test_a_folder_of_that_name_and_one_that_cannot_be_written():
    Path("a.mindir").mkdir()
    with pytest.raises(IsADirectoryError, match=r"'a\.mindir' is a folder"):
        export(cell(same), X, "a")
    Path("file").write_text("")
    with pytest.raises(
        OSError, match=r"cannot write 'file/a\.mindir': 'file' is, or is in, a file"
    ):
        export(cell(same), X, "file/a")
    with pytest.raises(OSError, match=r"cannot write 'file/b/a\.mindir': 'file/b' is, or is in, "):
        export(cell(same), X, "file/b/a")


def test_a_net_too_large_for_one_file(monkeypatch):
    from msnb.deploy import exporting

    monkeypatch.setattr(exporting, "_LARGEST", 100)
    with pytest.raises(ValueError, match=r"MindSpore splits a file into a folder"):
        export(Small(), images(), "large")


def test_what_a_dead_process_left_is_cleared(tmp_path):
    import socket

    dead = tmp_path / f".a.mindir.{socket.gethostname()}-999999999.xyz"
    dead.mkdir()
    (dead / "model.mindir").write_bytes(b"half")
    other = tmp_path / f".a.mindir.{socket.gethostname()}-{os.getpid()}.mine"
    other.mkdir()
    assert export(cell(plus_one), X, "a").ok
    assert not dead.exists()
    assert other.exists()


def test_the_public_names_are_these():
    assert msnb.export is export
    assert msnb.load_exported is load_exported


def test_one_failure_does_not_poison_the_next():
    assert isinstance(
        running.attempt(lambda: ops.matmul(ms.Tensor(X), ms.Tensor(X))), running.Failure
    )
    assert export(cell(plus_one), X, "next").ok

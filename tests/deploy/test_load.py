"""load_exported(): what it takes, and the sentence for everything else."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import mindspore as ms
import nets_to_export  # noqa: F401  (the path of the twins)
import numpy as np
import pytest
import torch
from nets_to_export import Small, expected, images
from twins import make

from msnb.deploy import export, graphfile, load_exported, manifest, wire
from msnb.deploy.loading import ExportedFileError, InputError


def tensor(rows: int = 4, **change: Any) -> Any:
    return ms.Tensor(images(rows), **change)


def rewrite(file: Path, /, **change: Any) -> None:
    """Change a manifest and its checksum, as a newer msnb or MindSpore would have written it."""
    place = manifest.beside(file)
    record = {**json.loads(place.read_text(encoding="utf-8")), **change}
    record.pop("checksum")
    record["checksum"] = manifest._checksum(record)
    place.write_text(manifest._canonical(record), encoding="utf-8")


# What it takes


def test_a_loaded_file_is_a_function(net, files):
    model = load_exported(files / "any.mindir")
    for rows in (1, 5):
        x = images(rows, seed=rows)
        np.testing.assert_allclose(model(ms.Tensor(x)).asnumpy(), expected(net, x), atol=1e-5)
    assert repr(model) == (
        "<any.mindir: x float32 (batch, 1, 4, 4) NCHW -> output float32 (batch, 3)>"
    )
    assert model.manifest.net == "Small"


def test_the_suffix_may_be_left_out_and_the_path_be_a_text(files):
    assert load_exported(str(files / "fixed"))(tensor()).shape == (4, 3)


# Inputs

INPUTS = [
    ((), "any.mindir takes 1 inputs (x), and 0 were given"),
    ((tensor(), tensor()), "takes 1 inputs (x), and 2 were given"),
    (
        (images(),),
        "input x was given as a NumPy array, and takes a MindSpore tensor: mindspore.Tensor(x)",
    ),
    (
        (torch.from_numpy(images()),),
        "given as a PyTorch tensor, and takes a MindSpore tensor: "
        "mindspore.Tensor(x.detach().cpu().numpy())",
    ),
    ((images().tolist(),), "takes a MindSpore tensor, not a list"),
    ((None,), "takes a MindSpore tensor, not a NoneType"),
    (
        (tensor()[0],),
        "has 4 axes (batch, 1, 4, 4), and was given 3 (1, 4, 4); a single one needs an axis for "
        "the batch: x.expand_dims(0)",
    ),
    ((ms.Tensor(images().reshape(4, 16)),), "has 4 axes (batch, 1, 4, 4), and was given 2 (4, 16)"),
    (
        (ms.Tensor(images().transpose(0, 2, 3, 1)),),
        "is NCHW (batch, 1, 4, 4), and was given NHWC (4, 4, 4, 1): x.transpose(0, 3, 1, 2)",
    ),
    (
        (ms.Tensor(np.zeros((4, 1, 5, 4), np.float32)),),
        "exported for the shape (batch, 1, 4, 4), and was given (4, 1, 5, 4): 5 along axis 2 "
        "instead of 4",
    ),
    ((ms.Tensor(np.zeros((4, 3, 4, 4), np.float32)),), "3 along axis 1 instead of 1"),
    ((tensor(dtype=ms.float16),), "is float32, and was given float16: x.astype(mindspore.float32)"),
    ((tensor(dtype=ms.float64),), "is float32, and was given float64"),
    ((tensor(dtype=ms.int32),), "is float32, and was given int32"),
]


@pytest.fixture(scope="module")
def loaded(exported):
    return load_exported(exported[1] / "any.mindir")


@pytest.mark.parametrize(("inputs", "sentence"), INPUTS, ids=[i[1][:40] for i in INPUTS])
def test_an_input_that_the_file_was_not_made_for(loaded, inputs, sentence):
    with pytest.raises(InputError) as caught:
        loaded(*inputs)
    assert sentence in str(caught.value)


def test_a_batch_size_that_was_fixed_is_held_to(net, files):
    model = load_exported(files / "fixed.mindir")
    with pytest.raises(InputError, match=r"3 along axis 0 instead of 4; a CPU may take it all"):
        model(tensor(3))
    x = images(3)
    relaxed = load_exported(files / "fixed.mindir", strict=False)
    with pytest.warns(UserWarning, match="tried, as strict=False"):
        found = relaxed(ms.Tensor(x))
    np.testing.assert_allclose(found.asnumpy(), expected(net, x), atol=1e-5)
    with pytest.warns(UserWarning, match="converted, as strict=False"):
        assert relaxed(images()).shape == (4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert relaxed(tensor()).shape == (4, 3)


@pytest.mark.slow
def test_two_inputs_of_one_batch_have_one_size(tmp_path):
    twin = make("vae")
    x, noise = twin.batch[:2]
    export(twin.mindspore, (x, noise), tmp_path / "v", dynamic={0: "batch"}).require()
    model = load_exported(tmp_path / "v")
    assert len(model(ms.Tensor(x[:2]), ms.Tensor(noise[:2]))) == 3
    with pytest.raises(InputError, match=r"input noise has 3 along axis 0 \(batch\), and an input"):
        model(ms.Tensor(x[:2]), ms.Tensor(noise[:3]))


@pytest.mark.slow
def test_a_wrong_number_of_rows_is_not_handed_out(tmp_path):
    twin = make("gru")
    x = twin.batch[0]
    export(twin.mindspore, x, tmp_path / "g").require()
    model = load_exported(tmp_path / "g", strict=False)
    with (
        pytest.warns(UserWarning, match="tried"),
        pytest.raises(InputError, match=r"gave output with the shape \(4, 3\) instead of \(1, 3\)"),
    ):
        model(ms.Tensor(x[:1]))


# Files


def gone(folder):
    return folder / "nothing.mindir"


def a_folder(folder):
    (folder / "f.mindir").mkdir()
    return folder / "f.mindir"


def no_manifest(folder):
    manifest.beside(folder / "any.mindir").unlink()
    return folder / "any.mindir"


def manifest_of_another(folder):
    shutil.copy(folder / "fixed.mindir.json", folder / "any.mindir.json")
    return folder / "any.mindir"


def edited_manifest(folder):
    place = folder / "any.mindir.json"
    place.write_text(place.read_text(encoding="utf-8").replace('"batch"', "7"), encoding="utf-8")
    return folder / "any.mindir"


def manifest_with_a_blank_more(folder):
    place = folder / "any.mindir.json"
    place.write_text(place.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    return folder / "any.mindir"


def empty_manifest(folder):
    (folder / "any.mindir.json").write_text("")
    return folder / "any.mindir"


def manifest_that_is_a_list(folder):
    (folder / "any.mindir.json").write_text("[]\n")
    return folder / "any.mindir"


def manifest_of_a_newer_msnb(folder):
    rewrite(folder / "any.mindir", format=2)
    return folder / "any.mindir"


def manifest_without_inputs(folder):
    rewrite(folder / "any.mindir", inputs=3)
    return folder / "any.mindir"


def newer_mindspore(folder):
    rewrite(folder / "any.mindir", mindspore="2.99.1")
    return folder / "any.mindir"


def cut_short(folder):
    file = folder / "any.mindir"
    file.write_bytes(file.read_bytes()[:-100])
    return file


def one_bit(folder):
    file = folder / "any.mindir"
    content = bytearray(file.read_bytes())
    content[5000] ^= 1
    file.write_bytes(content)
    return file


def empty(folder):
    (folder / "any.mindir").write_bytes(b"")
    return folder / "any.mindir"


def encrypted(folder):
    net = Small()
    net.set_train(False)
    ms.export(
        net,
        tensor(),
        file_name="/proc/self/cwd/enc",
        file_format="MINDIR",
        enc_key=b"0123456789ABCDEF",
    )
    shutil.move("enc.mindir", folder / "enc.mindir")  # MindSpore writes no manifest
    return folder / "enc.mindir"


def manifest_for(file: Path, other: Path) -> None:
    shutil.copy(manifest.beside(other), manifest.beside(file))
    rewrite(file, file=file.name, bytes=file.stat().st_size, sha256=manifest.sha256(file))


def a_checkpoint(folder):
    ms.save_checkpoint(Small(), str(folder / "net.ckpt"))
    return folder / "net.ckpt"


def onnx(folder):
    (folder / "net.onnx").write_bytes(b"\x08\x04")
    return folder / "net.onnx"


def another_suffix(folder):
    shutil.copy(folder / "any.mindir", folder / "any.bin")
    return folder / "any.bin"


def a_web_page(folder):
    file = folder / "page.mindir"
    file.write_text("<!DOCTYPE html><html>404</html>")
    manifest_for(file, folder / "any.mindir")
    return file


def json_text(folder):
    file = folder / "page.mindir"
    file.write_bytes(b"\n\x031.1\x12\x05Other")
    manifest_for(file, folder / "any.mindir")
    return file


FILES = [
    (gone, FileNotFoundError, "there is no exported file"),
    (a_folder, ExportedFileError, "is a folder: name the file in it"),
    (no_manifest, ExportedFileError, "has no manifest: any.mindir.json should be beside it"),
    (manifest_of_another, ExportedFileError, "not the file that its manifest was written for"),
    (edited_manifest, ExportedFileError, "is damaged or was edited: its checksum does not match"),
    (manifest_with_a_blank_more, ExportedFileError, "is damaged or was edited"),
    (empty_manifest, ExportedFileError, "is damaged or was edited"),
    (manifest_that_is_a_list, ExportedFileError, "is damaged or was edited"),
    (manifest_of_a_newer_msnb, ExportedFileError, "has format 2, and this msnb reads format 1"),
    (manifest_without_inputs, ExportedFileError, "was not written by msnb"),
    (newer_mindspore, ExportedFileError, "was made by MindSpore 2.99.1, and this is "),
    (cut_short, ExportedFileError, "bytes of"),
    (one_bit, ExportedFileError, "the size is right, the content is not"),
    (empty, ExportedFileError, "it has 0 bytes of"),
    (encrypted, ExportedFileError, "is an encrypted MINDIR file"),
    (a_checkpoint, ExportedFileError, "is a checkpoint: weights without a graph"),
    (onnx, ExportedFileError, "is an ONNX file, which MindSpore does not load"),
    (another_suffix, ExportedFileError, "is no .mindir file"),
    (a_web_page, ExportedFileError, "is damaged, or no MINDIR file"),
    (json_text, ExportedFileError, "it holds no graph of MindSpore's"),
]


@pytest.mark.parametrize(
    ("make_file", "error", "sentence"), FILES, ids=lambda v: getattr(v, "__name__", "")
)
def test_a_file_that_is_not_there_whole(make_file, error, sentence, files, monkeypatch):
    monkeypatch.chdir(files)
    with pytest.raises(error) as caught:
        load_exported(make_file(files))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", [None, 3, "", b"x"])
def test_a_path_that_is_none(path):
    with pytest.raises(
        TypeError, match=r"path is that of an exported file such as 'lenet\.mindir'"
    ):
        load_exported(path)


def test_a_manifest_knows_the_file_that_is_being_replaced(files):
    """The moment between two renames: the old file, the manifest of both."""
    old = manifest.read(files / "any.mindir")
    record = json.loads((files / "any.mindir.json").read_text(encoding="utf-8"))
    previous = {k: v for k, v in record.items() if k not in ("format", "checksum")}
    rewrite(files / "any.mindir", sha256="0" * 64, mindspore="1.0", previous=previous)
    assert manifest.read(files / "any.mindir") == old
    assert load_exported(files / "any.mindir")(tensor(2)).shape == (2, 3)


@pytest.mark.slow
def test_without_a_manifest_only_unstrictly_and_with_a_warning(net, files):
    file = no_manifest(files)
    with pytest.warns(UserWarning, match=r"has no manifest.*loaded all the same, as strict=False"):
        model = load_exported(file, strict=False)
    x = images(2)
    np.testing.assert_allclose(model(ms.Tensor(x)).asnumpy(), expected(net, x), atol=1e-5)
    with pytest.raises(InputError, match="is float32, and was given float16"):
        model(tensor(dtype=ms.float16))
    edited_manifest_again = files / "fixed.mindir"
    manifest.beside(edited_manifest_again).write_text("{}")
    with pytest.raises(ExportedFileError, match="is damaged or was edited"):
        load_exported(edited_manifest_again, strict=False)  # damage is never tolerated
    file.write_bytes(file.read_bytes()[:3000])
    with (
        pytest.warns(UserWarning, match="has no manifest"),
        pytest.raises(ExportedFileError, match="is damaged"),
    ):
        load_exported(file, strict=False)


# The reader of graphs


def test_the_graph_is_read_without_mindspore(exported):
    net, folder = exported
    graph = graphfile.read(folder / "any.mindir")
    assert graph.made_by == f"MindSpore {ms.__version__}"
    assert [(v.name, v.shape, v.dtype) for v in graph.inputs] == [("x", (-1, 1, 4, 4), "float32")]
    assert [v.shape for v in graph.outputs] == [(-1, 3)]
    stored = {v.name: np.frombuffer(v.data, np.float32).reshape(v.shape) for v in graph.parameters}
    assert set(stored) == {p.name for p in net.get_parameters()}
    for parameter in net.get_parameters():
        assert (stored[parameter.name] == parameter.asnumpy()).all()
    assert graph.operators["Conv2D"] == graph.operators["MatMul"] == 1
    assert graph.training == ()


@pytest.mark.slow
def test_a_file_too_large_for_a_graph_is_not_read(tmp_path):
    path = tmp_path / "huge.mindir"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # takes no space
    with pytest.raises(
        graphfile.GraphFileError, match=r"has 1099\.5 GB, and a MINDIR file at most"
    ):
        graphfile.read(path)


def test_the_graph_tells_what_behaves_as_in_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = Small()
    net.set_train()
    ms.export(net, tensor(), file_name="t", file_format="MINDIR")
    assert graphfile.read(tmp_path / "t.mindir").training == ("Dropout", "BatchNorm")


def test_the_wire_reader_knows_the_published_example():
    # https://protobuf.dev/programming-guides/encoding/: 08 96 01, and "testing" in field 2
    assert list(wire.fields(memoryview(b"\x08\x96\x01"))) == [(1, 150)]
    ((number, value),) = wire.fields(memoryview(bytes.fromhex("120774657374696e67")))
    assert (number, wire.text(value)) == (2, "testing")
    assert wire.packed(memoryview(bytes.fromhex("038e029ea705"))) == [3, 270, 86942]
    assert wire.signed((1 << 64) - 2) == -2
    for bad in (b"\x08", b"\x08\xff" * 1, b"\x0a\x05ab", b"\x0b", b"\x00", b"\x08" + b"\xff" * 11):
        with pytest.raises(wire.Damaged):
            list(wire.fields(memoryview(bad)))

"""Files of weights: read without executing anything in them, or told what they are."""

from __future__ import annotations

import json
import os
import pickle
import re
import struct
import zipfile
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
import torch
from damage import damaged
from mindspore import nn

import msnb
from msnb import weightfile
from msnb.weightfile import WeightFileError, identify, read

STATE = {"weight": torch.arange(6.0).reshape(3, 2), "bias": torch.tensor([0.5, -0.0, 7.0])}


@pytest.fixture
def folder(tmp_path):
    where = tmp_path / "权重 and more"
    where.mkdir()
    return where


def safetensors_bytes(tensors, metadata=None, header=None):
    """The format written by hand: 8 bytes of length, a JSON header, the bytes of the tensors."""
    body, entries = b"", {}
    for name, (kind, shape, data) in tensors.items():
        entries[name] = {
            "dtype": kind,
            "shape": shape,
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    if metadata is not None:
        entries = {"__metadata__": metadata, **entries}
    text = json.dumps(header if header is not None else entries).encode()
    return struct.pack("<Q", len(text)) + text + body


def safe(folder, *args, **kwargs):
    path = folder / "w.safetensors"
    path.write_bytes(safetensors_bytes(*args, **kwargs))
    return path


GOOD = {
    "weight": ("F32", [3, 2], np.arange(6, dtype="<f4").tobytes()),
    "bias": ("F32", [3], np.array([0.5, -0.0, 7.0], "<f4").tobytes()),
}


def saved(folder, content, name="w.pth", **options):
    torch.save(content, folder / name, **options)
    return folder / name


@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors", "text path"])
def test_a_file_reaches_the_net(folder, kind):
    if kind == "safetensors":
        path = safe(folder, GOOD, {"format": "pt"})
    else:
        path = saved(folder, STATE, _use_new_zipfile_serialization=kind != "legacy")
    net = nn.Dense(2, 3)
    assert msnb.copy_weights(str(path) if kind == "text path" else path, net).ok
    np.testing.assert_array_equal(net.weight.asnumpy(), [[0, 1], [2, 3], [4, 5]])
    assert net.bias.asnumpy().tobytes() == np.array([0.5, -0.0, 7.0], np.float32).tobytes()


def test_the_name_of_a_file_does_not_matter(folder):
    assert read(saved(folder, STATE, "w.safetensors")).format == "PyTorch"
    path = safe(folder, GOOD).rename(folder / "w.pth")
    assert read(path).format == "safetensors"


@pytest.mark.parametrize(
    ("content", "container", "others"),
    [
        (STATE, "", {}),
        ({"state_dict": STATE, "epoch": 3}, "state_dict", {"epoch": "int"}),
        ({"model": STATE, "optimizer": {"state": {}}}, "model", {"optimizer": "dict"}),
        ({"model_state_dict": STATE, "ema": STATE}, "model_state_dict", {"ema": "dict"}),
        ({"my_net": STATE, "lr": 0.1}, "my_net", {"lr": "float"}),
        ({"model": {"state_dict": STATE}, "step": 1}, "model.state_dict", {"step": "int"}),
        ({**STATE, "version": 2}, "", {"version": "int"}),
        ({"state_dict": STATE, "loss": torch.tensor(1.0)}, "state_dict", {"loss": "Tensor"}),
    ],
)
def test_weights_are_found_in_a_checkpoint(folder, content, container, others):
    file = read(saved(folder, content))
    assert file.tensors.keys() == STATE.keys()
    assert (file.container, file.others) == (container, others)
    assert msnb.copy_weights(folder / "w.pth", nn.Dense(2, 3)).ok
    assert msnb.copy_weights(content, nn.Dense(2, 3)).ok


def test_two_sets_of_weights_are_not_guessed_between(folder):
    path = saved(folder, {"generator": STATE, "critic": STATE})
    with pytest.raises(WeightFileError, match="several sets of tensors: generator, critic; give"):
        read(path)


def test_tied_weights_stay_tied_in_a_file(folder):
    weight = torch.arange(6.0).reshape(3, 2)
    file = read(saved(folder, {"a.weight": weight, "b.weight": weight}))
    assert file.tensors["a.weight"].data_ptr() == file.tensors["b.weight"].data_ptr()


# Code in a file


class Evil:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


class System:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return (os.system, (self.command,))


@pytest.mark.parametrize("kind", ["zip", "legacy", "raw pickle", "nested"])
def test_code_in_a_file_is_not_executed(folder, kind):
    target = folder / "made by the pickle"
    for evil in (Evil(target), System(f"touch '{target}'")):
        path = folder / "w.pth"
        if kind == "raw pickle":
            path.write_bytes(pickle.dumps({**STATE, "x": evil}))
        elif kind == "nested":
            saved(folder, {"state_dict": {**STATE, "x": [{"y": evil}]}})
        else:
            saved(folder, {**STATE, "x": evil}, _use_new_zipfile_serialization=kind == "zip")
        net = nn.Dense(2, 3)
        before = net.weight.asnumpy().copy()
        with pytest.raises(WeightFileError) as caught:
            msnb.copy_weights(path, net)
        assert not target.exists()
        assert "Nothing of it was executed" in str(caught.value)
        assert re.search(r"posix\.system|pathlib\.Path", str(caught.value))
        np.testing.assert_array_equal(net.weight.asnumpy(), before)


def test_the_malicious_file_is_malicious(folder):
    """What the test above guards against does happen to someone who opens the file carelessly."""
    target = folder / "made by the pickle"
    path = saved(folder, {"x": Evil(target)})
    torch.load(path, weights_only=False)
    assert target.exists()


def test_a_whole_pickled_net_is_told(folder):
    path = saved(folder, torch.nn.Linear(2, 3))
    with pytest.raises(WeightFileError) as caught:
        read(path)
    assert "holds a whole pickled net" in str(caught.value)
    assert "torch.nn.modules.linear.Linear" in str(caught.value)
    assert "torch.save(net.state_dict()" in str(caught.value)


def test_numpy_arrays_in_a_pickle_are_told(folder):
    with pytest.raises(WeightFileError, match=r"numpy\.core\.multiarray\._reconstruct"):
        read(saved(folder, {"weight": np.zeros(3)}))


# Damage


def test_every_shortened_file_is_refused(folder):
    for path in (saved(folder, STATE), safe(folder, GOOD)):
        whole = path.read_bytes()
        for keep in {1, 9, 60, len(whole) // 3, len(whole) // 2, len(whole) - 40, len(whole) - 1}:
            path.write_bytes(whole[:keep])
            with pytest.raises(WeightFileError) as caught:
                read(path)
            assert str(path) in str(caught.value)


def test_a_flipped_bit_is_noticed_where_pytorch_does_not(folder):
    path = saved(folder, {"weight": torch.zeros(500)})
    with zipfile.ZipFile(path) as archive:
        record = next(i for i in archive.infolist() if i.filename.endswith("data/0"))
    data = bytearray(path.read_bytes())
    data[data.index(record.filename.encode()) + 1000] ^= 1
    path.write_bytes(data)
    assert torch.load(path, weights_only=True)["weight"].any()  # loaded, and wrong
    with pytest.raises(WeightFileError, match=r"the checksum of \S+/data/0 does not match"):
        read(path)


def test_a_file_without_checksums_is_told(folder):
    if not hasattr(torch.serialization, "set_crc32_options"):
        pytest.skip("this PyTorch always writes checksums")
    torch.serialization.set_crc32_options(False)
    try:
        path = saved(folder, STATE)
    finally:
        torch.serialization.set_crc32_options(True)
    with pytest.raises(WeightFileError, match=r"set_crc32_options\(False\) has no checksums"):
        read(path)
    assert msnb.copy_weights(torch.load(path, weights_only=True), nn.Dense(2, 3)).ok


@pytest.mark.parametrize(
    "tensors",
    [
        {"a": ("F32", [3], bytes(8))},
        {"a": ("F32", [-1], b"")},
        {"a": ("F32", [True], bytes(4))},
        {"a": ("Q4", [2], bytes(8))},
    ],
)
def test_safetensors_that_contradict_themselves(folder, tensors):
    with pytest.raises(WeightFileError, match="is a safetensors file that is damaged or cut short"):
        read(safe(folder, tensors))


def test_safetensors_without_tensors_or_of_unknown_dtype(folder):
    with pytest.raises(WeightFileError, match="holds no tensors"):
        read(safe(folder, {}))
    with pytest.raises(WeightFileError, match="a has dtype 'F4', which is not supported"):
        read(safe(folder, {"a": ("F4", [2], bytes(1))}))


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}},
        {"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1]}},
        {"a": 3},
        {n: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for n in "ab"},
    ],
)
def test_safetensors_headers_that_do_not_fit(folder, header):
    path = safe(folder, {"x": ("F32", [2], bytes(8))}, header=header)
    with pytest.raises(
        WeightFileError, match=r"w\.safetensors is a safetensors file that is damaged"
    ):
        read(path)


def test_safetensors_dtypes(folder):
    import safetensors.torch as library

    state = {
        "half": torch.tensor([1.5, -2.0]).half(),
        "brain": torch.tensor([1.5, 3.0]).bfloat16(),
        "double": torch.tensor([0.1], dtype=torch.float64),
        "count": torch.tensor(7),
        "mask": torch.tensor([True, False]),
        "none": torch.zeros(0, 3),
    }
    library.save_file(state, folder / "w.safetensors")
    found = read(folder / "w.safetensors").tensors
    assert found.keys() == state.keys()
    for name, value in state.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)


# What is no file of weights


FOREIGN = {
    "an empty file": b"",
    "a web page": b"\n<!DOCTYPE html>\n<html>",
    "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    "an HDF5 file": b"\x89HDF\r\n\x1a\n",
    "a gzip archive": b"\x1f\x8b\x08\x00",
    "a GGUF file": b"GGUF\x03\x00",
    "a JSON file": b'{"a": 1}',
    "of no known kind": b"\x00\x01\x02\x03 what is this?",
}


@pytest.mark.parametrize("what", FOREIGN)
def test_foreign_files_are_told(folder, what):
    path = folder / "w.pth"
    path.write_bytes(FOREIGN[what])
    assert identify(path).startswith(what)
    with pytest.raises(WeightFileError, match=re.escape(f"is {what}")):
        msnb.copy_weights(path, nn.Dense(2, 3))


def test_a_mindspore_checkpoint_is_told(folder):
    net = nn.Dense(2, 3)
    ms.save_checkpoint(net, str(folder / "a.ckpt"))
    with pytest.raises(WeightFileError) as caught:
        msnb.copy_weights(folder / "a.ckpt", net)
    assert "is a MindSpore checkpoint" in str(caught.value)
    assert "msnb.load_checkpoint(path, net)" in str(caught.value)
    ms.save_checkpoint(net, str(folder / "b"), format="safetensors")
    with pytest.raises(WeightFileError, match="was written by MindSpore and has its names"):
        msnb.copy_weights(folder / "b.safetensors", net)


def test_other_archives_are_told(folder):
    torch.jit.script(torch.nn.Linear(2, 3)).save(str(folder / "a.pt"))
    np.savez(folder / "b.npz", a=np.zeros(2))
    np.save(folder / "c.npy", np.zeros(2))
    with zipfile.ZipFile(folder / "d.zip", "w") as archive:
        archive.writestr("readme", "hello")
    for name, words in {
        "a.pt": "is TorchScript, .*torch.jit.load",
        "b.npz": "is a NumPy archive",
        "c.npy": "is a NumPy array",
        "d.zip": "is a zip file of something else",
    }.items():
        with pytest.raises(WeightFileError, match=words):
            read(folder / name)


def test_files_without_weights_and_paths_without_files(folder):
    for content, words in (
        ({"epoch": 3, "lr": 0.1}, "holds no tensors; it holds epoch, lr"),
        ([torch.zeros(2)], "holds a list, not a state dict"),
        (torch.zeros(2), "holds a Tensor, not a state dict"),
        ({}, "holds no tensors; it holds nothing"),
    ):
        with pytest.raises(WeightFileError, match=re.escape(words)):
            read(saved(folder, content))
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read(folder / "missing.pth")
    with pytest.raises(WeightFileError, match="is a folder: name the file"):
        read(folder)


def test_only_the_callers_mistakes_are_value_errors():
    assert issubclass(weightfile.WeightFileError, ValueError)


def test_a_checksum_is_named_or_there_is_none(folder):
    path = saved(folder, STATE)
    assert read(path).checksum == "CRC-32 of each record"
    assert read(saved(folder, STATE, _use_new_zipfile_serialization=False)).checksum == ""
    assert read(safe(folder, GOOD)).checksum == ""
    net = nn.Dense(2, 3)
    path = msnb.save_checkpoint(folder / "w.safetensors", net, framework="torch")
    assert read(path).checksum == "SHA-256"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(WeightFileError, match="its checksum does not match its content"):
        read(path)
    # swapping a shape leaves every number where it was, and safetensors reads it
    net = nn.Dense(2, 3, has_bias=False)
    data = msnb.save_checkpoint(path, net, framework="torch").read_bytes()
    path.write_bytes(data.replace(b"[3,2]", b"[2,3]"))
    with pytest.raises(WeightFileError, match="its checksum does not match its content"):
        read(path)


@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors"])
def test_random_damage_is_refused_or_not_verified(kind, folder):
    path = folder / "w.pth"
    if kind == "safetensors":
        path = safe(folder, GOOD)
    else:
        saved(folder, STATE, _use_new_zipfile_serialization=kind == "zip")
    for what, data in damaged(path.read_bytes()):
        path.write_bytes(data)
        try:
            file = read(path)
        except WeightFileError:
            continue
        if file.checksum:
            assert file.tensors.keys() == STATE.keys(), what
            assert all(torch.equal(file.tensors[name], STATE[name]) for name in STATE), what

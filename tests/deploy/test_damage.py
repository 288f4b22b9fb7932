"""Damaged files: found, in words, and never by taking the process down."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from damage import damaged
from nets_to_export import Small, expected, images
from typer.testing import CliRunner

from msnb import cli, isolate
from msnb.deploy import export, graphfile, load_exported, manifest, running
from msnb.deploy.inspecting import look_into
from msnb.deploy.loading import ExportedFileError


def test_damage_of_the_model_is_found_before_mindspore_sees_it(files, monkeypatch):
    monkeypatch.setattr(running, "load", lambda path: pytest.fail("MindSpore got a damaged file"))
    file = files / "any.mindir"
    for what, content in damaged(file.read_bytes()):
        file.write_bytes(content)
        with pytest.raises(ExportedFileError, match="is damaged, or not the file") as caught:
            load_exported(file)
        assert "sha256" in str(caught.value), what
        assert look_into(file).report.worst == "failed", what


def test_damage_of_the_manifest_is_found(files, monkeypatch):
    monkeypatch.setattr(running, "load", lambda path: pytest.fail("MindSpore got a damaged file"))
    file = files / "any.mindir"
    whole = manifest.beside(file).read_bytes()
    for what, content in damaged(whole):
        manifest.beside(file).write_bytes(content)
        with pytest.raises(ExportedFileError, match=r"is damaged or was edited"):
            load_exported(file)
        assert look_into(file).report.worst == "failed", what
    manifest.beside(file).write_bytes(whole)
    assert look_into(file).report.ok


def test_damage_without_a_manifest_is_never_called_whole(files):
    """The format has no checksum: what can be read is said to be not verifiable."""
    file = files / "any.mindir"
    manifest.beside(file).unlink()
    readable = 0
    for what, content in damaged(file.read_bytes()):
        file.write_bytes(content)
        contents = look_into(file)
        assert contents.report["manifest"].status == "skipped", what
        assert "not verifiable" in contents.report["manifest"].summary
        assert "whole" not in contents.report["graph"].summary
        readable += contents.report["graph"].status == "ok"
    assert readable  # a flipped bit in a weight goes unseen


@pytest.mark.slow
def test_mindspores_own_reader_is_kept_in_a_process_of_its_own(files):
    """How each of 50 damaged files ends where nothing checks it first."""
    file = files / "any.mindir"
    whole, x = file.read_bytes(), images()
    endings: list[str] = []
    with isolate.Worker() as worker:
        for _, content in damaged(whole, 50, 0):
            file.write_bytes(content)
            outcome = worker.run(running.run_file, str(file), [[x]], ["float32"], "CPU", timeout=60)
            endings.append(outcome.status)
    assert "ok" in endings
    assert set(endings) <= {"ok", "signal", "timeout", "raised"}


def test_inspect_on_the_command_line(net, files, tmp_path):
    def inspect(*words: Any) -> Any:
        return CliRunner().invoke(cli.make_app(), ["inspect", *map(str, words)])

    result = inspect(files / "any.mindir")
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert lines[0].startswith(f"any.mindir: MINDIR made by MindSpore {ms.__version__} on CPU, ")
    assert "x float32 (batch, 1, 4, 4) NCHW" in lines
    assert "output float32 (batch, 3)" in lines
    assert "parameters: 127 in 8 arrays" in lines
    assert "conv.weight float32 (2, 1, 3, 3) 72 bytes" in lines
    assert "Conv2D 1" in lines
    assert "inspect any.mindir: ok (2 ok)" in lines
    ms.save_checkpoint(net, str(tmp_path / "a.ckpt"), crc_check=True)
    ms.save_checkpoint(net, str(tmp_path / "b.ckpt"))
    result = inspect(tmp_path / "a.ckpt")
    assert result.exit_code == 0
    assert "parameters: 127 in 8 arrays" in result.output
    assert "the file is whole: CRC-32 agrees" in result.output
    assert "not verifiable: the file carries no checksum" in inspect(tmp_path / "b.ckpt").output
    content = bytearray((tmp_path / "a.ckpt").read_bytes())
    content[200] ^= 1
    (tmp_path / "a.ckpt").write_bytes(content)
    result = inspect(tmp_path / "a.ckpt")
    assert result.exit_code == 1
    assert "damaged" in result.output
    result = inspect(tmp_path / "nothing.mindir")
    assert (result.exit_code, "there is no file" in result.output) == (2, True)
    assert inspect(tmp_path).exit_code == 2
    import json

    record = json.loads(inspect(files / "any.mindir", "--json").output)
    assert record["inputs"] == [["x", "float32", "(batch, 1, 4, 4)", "NCHW"]]
    assert ["conv.weight", "float32", "(2, 1, 3, 3)", "72 bytes"] in record["parameters"]
    assert record["report"]["ok"] is True


def test_inspect_of_pytorchs_files_executes_nothing(tmp_path):
    import torch
    from safetensors.torch import save_file

    weights = {"fc.weight": torch.ones(2, 3), "half": torch.ones(4, dtype=torch.bfloat16)}
    torch.save(weights, tmp_path / "w.pth")
    save_file(weights, tmp_path / "w.safetensors")
    for file in ("w.pth", "w.safetensors"):
        text = " ".join(look_into(tmp_path / file).text().split())
        assert "fc.weight float32 (2, 3) 24 bytes" in text
        assert "half bfloat16 (4,) 8 bytes" in text
    torch.save(Bomb(str(tmp_path / "went off")), tmp_path / "bomb.pth")
    contents = look_into(tmp_path / "bomb.pth")
    assert contents.report.worst == "failed"
    assert not (tmp_path / "went off").exists()


class Bomb:
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return (os.mkdir, (self.folder,))


# Cut off in mid-export


class Cut(BaseException):
    """As sudden as a kill: nobody catches it."""


@pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_cut_off_between_the_renames(step, tmp_path, monkeypatch):
    """Three renames put an export over an older one: cut off before each, one pair is whole."""
    net = Small()
    export(net, images(), tmp_path / "net").require()
    ms.ops.assign(net.fc.bias, ms.Tensor(np.float32([7, 8, 9])))
    renames, replace = [0], Path.replace

    def cut(self: Path, target: Path) -> Path:
        renames[0] += target.parent == tmp_path
        if renames[0] == step:
            raise Cut
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", cut)
    with pytest.raises(Cut):
        export(net, images(), tmp_path / "net")
    monkeypatch.undo()
    assert manifest.read(tmp_path / "net.mindir").net == "Small"
    assert (bias_in(tmp_path / "net.mindir") == [7, 8, 9]).all() == (step == 3)
    assert load_exported(tmp_path / "net")(ms.Tensor(images())).shape == (4, 3)


def bias_in(file: Path) -> Any:
    """The bias of the last layer, from the file's bytes."""
    stored = {value.name: value.data for value in graphfile.read(file).parameters}
    return np.frombuffer(stored["fc.bias"], np.float32)


NURSERY = """
import os, sys, time
sys.path[:0] = {paths!r}
import mindspore as ms, numpy as np
from nets_to_export import Small, images
from msnb.deploy import export
for line in sys.stdin:
    if os.fork():
        continue
    start = int(line)
    net = Small()
    print("born", os.getpid(), flush=True)
    for number in range(start, start + 1000):
        ms.ops.assign(net.fc.bias, ms.Tensor(np.full(3, number, np.float32)))
        export(net, images(), {name!r}).require()
        print("done", number, flush=True)
"""


@pytest.mark.slow
def test_kill_9_in_mid_export_leaves_the_old_file_or_the_new_one(tmp_path):
    """30 random moments. The processes are forked from one that has imported MindSpore, no more."""
    rng = random.Random(0)
    file = tmp_path / "out put" / "net.mindir"
    paths = [str(Path(__file__).resolve().parent), *sys.path]
    code = NURSERY.format(paths=paths, name=str(file))
    nursery = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert nursery.stdin
    assert nursery.stdout
    first, last, found, half = 0, -1, [], 0
    try:
        for moment in range(30):
            nursery.stdin.write(f"{first}\n")
            nursery.stdin.flush()
            while (line := nursery.stdout.readline().split())[0] != "born":
                last = int(line[1])  # what an earlier one did in its last moment
            child = int(line[1])
            for _ in range(moment % 2):  # in the first export of a process, or in a later one
                last = int(nursery.stdout.readline().split()[1])
            time.sleep(rng.uniform(0, 1.0))
            os.kill(child, signal.SIGKILL)
            first += 1000
            half += any(f"-{child}." in name for name in os.listdir(file.parent))
            if not file.exists():
                assert last < 0
                continue
            assert manifest.read(file).kind == "MINDIR"  # whole, and its manifest's
            (number,) = set(bias_in(file).tolist())
            assert number >= last
            found.append(number)
    finally:
        nursery.kill()
        nursery.wait()
    assert half > 10  # it was in mid-export that most were killed
    assert len(set(found)) > 10
    net = Small()
    export(net, images(), file).require()
    assert sorted(os.listdir(file.parent)) == ["net.mindir", "net.mindir.json"]
    x = images()
    given = load_exported(file)(ms.Tensor(x)).asnumpy()
    np.testing.assert_allclose(given, expected(net, x), atol=1e-5)

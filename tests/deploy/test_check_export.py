"""check_export(): right files pass; each check fails on the fault that it is for."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn, ops
from nets_to_export import Small, images

import msnb
from msnb import isolate
from msnb.deploy import check_export, checking, export, manifest, running
from msnb.deploy.manifest import Manifest, Port


@pytest.fixture(scope="module")
def worker():
    with isolate.Worker() as found:
        yield found


@pytest.fixture
def warm(worker, monkeypatch):
    """The file's process, kept warm over several checks; test_round_trips has a fresh one."""

    def run(function: Any, *args: Any, timeout: float) -> Any:
        return worker.run(function, *args, timeout=timeout)

    monkeypatch.setattr(checking.isolate, "run", run)


def failed(report: msnb.Report) -> dict[str, Any]:
    return {check.id: check for check in report if check.status in ("failed", "error")}


def own_export(net: nn.Cell, name: str, x: Any, *, like: str = "") -> None:
    """By MindSpore's exporter, without our care, and with a manifest that fits."""
    ms.export(net, x, file_name=name, file_format="MINDIR")
    file = Path(f"{name}.mindir")
    known = manifest.read(Path(f"{like}.mindir"))
    known = replace(known, file=file.name, bytes=file.stat().st_size, sha256=manifest.sha256(file))
    manifest.beside(file).write_text(known.text(), encoding="utf-8")


@pytest.fixture
def here(files, monkeypatch):
    monkeypatch.chdir(files)
    return files


@pytest.mark.usefixtures("warm")
class TestFaults:
    def test_a_right_file_passes_at_every_batch_size(self, net, here):
        report = check_export("any", net, [images(2), (ms.Tensor(images(7)),)])
        assert report.ok, str(report)
        assert {c.summary for c in report if "row" in c.id} == {"bit by bit"}
        assert net.training

    def test_another_batch_size_than_the_files(self, net, here):
        bad = failed(check_export("fixed", net, [images(4), images(3)]))
        assert set(bad) == {"batch 1 (3 rows)"}
        assert (
            "fixed at 4 along axis 0 of x, and this batch has 3" in bad["batch 1 (3 rows)"].summary
        )

    def test_a_net_that_was_trained_after_the_export(self, here):
        net = Small()
        weights = net.conv.weight.asnumpy().copy()
        weights[1, 0, 1, 1] = np.nextafter(weights[1, 0, 1, 1], np.float32(9))
        ms.ops.assign(net.conv.weight, ms.Tensor(weights))
        bad = failed(check_export("fixed", net, [images()]))
        assert bad["parameters"].summary == "1 of 8 differ from the net's: conv.weight"
        assert "export it again" in bad["parameters"].remedy
        assert set(bad) == {"parameters"}  # one ulp is no difference in the outputs

    def test_an_attribute_that_was_changed_after_the_export(self, here):
        net = Small()
        net.scale = 1.001
        bad = failed(check_export("fixed", net, [images()]))
        assert {"batch 0 (4 rows)", "negated"} <= set(bad)
        assert "parameters" not in bad

    def test_a_file_exported_in_training(self, here):
        net = nn.SequentialCell(nn.Dense(3, 4), nn.BatchNorm1d(4))
        net.set_train()
        x = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
        export(net, x, "right").require()
        assert check_export("right", net, [x]).ok
        own_export(net, "trap", ms.Tensor(x), like="right")
        bad = failed(check_export("trap", net, [x]))
        assert "BatchNorm as in training" in bad["inference"].summary
        assert "batch 0 (8 rows)" in bad
        assert bad["stored outputs"].remedy == "export again, on this device"
        assert bad["cause"].summary == "the file computes what the net computes in training mode"

    def test_a_file_exported_with_dropout(self, here):
        net = Small()
        net.set_train(False)
        net.drop.set_train(True)
        own_export(net, "drop", ms.Tensor(images()), like="fixed")
        bad = failed(check_export("drop", net, [images()]))
        assert "Dropout as in training" in bad["inference"].summary
        assert bad["repeatable"].summary == "the file gives two answers for one batch"

    def test_a_branch_that_only_the_live_net_takes(self, here):
        """Exported where self.scale chose the branch: the file has the one alone."""

        class Branching(nn.Cell):
            def __init__(self):
                super().__init__()
                self.positive = True

            def construct(self, x):
                if self.positive:
                    return x + 1
                return ops.relu(x) + 1

        net = Branching()
        export(net, images() ** 2, "branch").require()
        net.positive = False
        bad = failed(check_export("branch", net, [images() ** 2]))
        assert set(bad) == {"negated"}  # the caller's batch alone would not have told

    def test_a_branch_on_values_goes_both_ways(self, here):
        class Branching(nn.Cell):
            def construct(self, x):
                if x.sum() > 0:
                    return x * 2
                return x * 3

        export(Branching(), images() ** 2, "branch").require()
        report = check_export("branch", Branching(), [images() ** 2])
        assert report.ok, str(report)

    def test_pytorchs_net_is_another(self, here):
        export(double := Double(), X, "double").require()
        assert check_export("double", double, [X], torch_net=TorchDouble(2.0)).ok
        bad = failed(check_export("double", double, [X], torch_net=TorchDouble(2.01)))
        assert set(bad) == {"PyTorch: batch 0 (2 rows)"}
        bad = failed(check_export("double", double, [X], torch_net=torch.nn.Flatten(0)))
        assert "PyTorch [(6,)]" in bad["PyTorch: batch 0 (2 rows)"].summary
        bad = failed(check_export("double", double, [X], torch_net=torch.nn.Linear(9, 9)))
        assert bad["PyTorch: batch 0 (2 rows)"].status == "error"

    def test_a_process_that_dies(self, net, here, monkeypatch):
        def die(*args: Any) -> None:
            os.kill(os.getpid(), signal.SIGSEGV)

        monkeypatch.setattr(checking.running, "run_file", die)
        bad = failed(check_export("fixed", net, [images()]))
        assert "killed by SIGSEGV" in bad["run"].summary


X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


class Double(nn.Cell):
    def construct(self, x):
        return x * 2


class TorchDouble(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


# Without a process: judging


PORT = (Port("x", (4, 3), "float32"),)
KNOWN = Manifest("a", "MINDIR", 0, "", "", "", "", 0, PORT, PORT)
BATCH = checking._Batch("batch", [np.zeros((4, 3), np.float32)], True)


def out(*shape: int, value: float = 1.0) -> running.Outputs:
    return [("output", np.full(shape, value, np.float32))]


@pytest.mark.parametrize(
    ("actual", "status", "words"),
    [
        (out(4, 3), "ok", "bit by bit"),
        (out(4, 3, value=1 + 2**-22), "ok", "equal but for rounding: at most 2.38e-07 off"),
        (out(4, 3, value=1.001), "failed", "12 of 12 elements are off"),
        (out(1, 3), "failed", "the file gives (1, 3), the net (4, 3)"),  # broadcasting hides it
        (out(4, 3) * 2, "failed", "the file gives 2 outputs, the net 1"),
        (running.Failure("RuntimeError", "no"), "failed", "cannot run: RuntimeError: no"),
        ([("output", np.ones((4, 3)))], "failed", "float64"),
    ],
)
def test_how_a_batch_is_judged(actual, status, words):
    check = checking._compared(BATCH, KNOWN, actual, out(4, 3))
    assert check.status == status
    assert words in check.summary


@pytest.mark.parametrize(
    ("second", "status", "words"),
    [
        (out(4, 3), "ok", "bit by bit"),
        (out(4, 3, value=1 + 2**-22), "ok", "but for rounding"),  # std and log2, on a CPU
        (out(4, 3, value=1.001), "failed", "two answers for one batch"),
        (out(2, 3), "failed", "two answers for one batch"),
        (out(4, 3) * 2, "failed", "two answers for one batch"),
    ],
)
def test_the_last_bit_is_no_second_answer(second, status, words):
    check = checking._repeatable([BATCH, replace(BATCH, id="again")], [out(4, 3), second])
    assert check.status == status
    assert words in check.summary


def test_nan_alone_proves_nothing():
    nothing = out(4, 3, value=np.nan)
    check = checking._compared(BATCH, KNOWN, nothing, nothing)
    assert check.status == "error"
    assert "NaN or infinity alone" in check.summary
    some = out(4, 3)
    some[0][1][0] = np.nan
    assert checking._compared(BATCH, KNOWN, some, some).status == "ok"


def test_a_net_that_raises():
    failure = running.Failure("ValueError", "negative")
    assert checking._compared(BATCH, KNOWN, failure, failure).status == "error"
    derived = replace(BATCH, given=False)
    assert checking._compared(derived, KNOWN, failure, failure).status == "ok"
    check = checking._compared(BATCH, KNOWN, out(4, 3), failure)
    assert check.status == "failed"
    assert "the net raises, the file does not" in check.summary


def test_stored_outputs_on_another_device_may_round_otherwise():
    kept = manifest.fingerprint(np.ones((4, 3), np.float32))
    known = replace(KNOWN, proof={"outputs": [kept]}, device="Ascend")
    assert checking._stored(known, out(4, 3)).summary == "bit by bit those of the export (Ascend)"
    check = checking._stored(known, out(4, 3, value=1 + 2**-22))
    assert check.status == "ok"
    assert check.summary == "those of the export on Ascend but for rounding"
    assert checking._stored(known, out(4, 3, value=1.01)).status == "failed"
    assert checking._stored(known, out(2, 3)).summary == "another shape than at export"
    assert checking._stored(known, running.Failure("E", "x")).status == "failed"


# Arguments

SLIPS = [
    ({"net": torch.nn.Linear(2, 2)}, TypeError, "not a net of PyTorch's: that is torch_net="),
    ({"net": len}, TypeError, "net is a mindspore nn.Cell, not a builtin_function_or_method"),
    ({"net": nn.Dense}, TypeError, "not the class Dense: give the net that was exported"),
    ({"batches": [images().astype(float)]}, ValueError, "x is float64, and the file takes float32"),
    ({"torch_net": 3}, TypeError, "torch_net is a torch nn.Module, not a int"),
    ({"batches": images()}, TypeError, "was given one array: put it into a list, [batch]"),
    ({"batches": "x"}, TypeError, "batches is a list of inputs"),
    ({"batches": []}, ValueError, "batches is empty: nothing would be checked"),
    ({"batches": [3]}, TypeError, "batch 0 is an array or a tuple of arrays, not a int"),
    ({"batches": [(images(), images())]}, ValueError, "has 2 inputs, and the file takes 1 (x)"),
    ({"batches": [X]}, ValueError, "x has the shape (2, 3), and the file takes 4 axes"),
    ({"batches": [images(0)]}, ValueError, "x is empty"),
    ({"path": "nothing"}, FileNotFoundError, "there is no exported file"),
    ({"path": 3}, TypeError, "path is that of an exported file"),
]


@pytest.mark.parametrize(("change", "error", "sentence"), SLIPS, ids=[s[2][:30] for s in SLIPS])
def test_a_slip_gets_a_sentence(net, here, change, error, sentence):
    given = {"path": "any", "net": net, "batches": [images()], **change}
    with pytest.raises(error) as caught:
        check_export(**given)
    assert sentence in str(caught.value)


def test_a_file_that_is_not_whole_is_a_finding(net, here):
    content = bytearray((here / "any.mindir").read_bytes())
    content[100] ^= 4
    (here / "any.mindir").write_bytes(content)
    (check,) = check_export("any", net, [images()])
    assert (check.id, check.status) == ("file", "failed")
    assert "is damaged" in check.summary
    ms.save_checkpoint(net, "net.ckpt")
    report = check_export("net.ckpt", net, [images()])
    assert report.title == "check_export net.ckpt"
    (check,) = report
    assert "is a checkpoint" in check.summary

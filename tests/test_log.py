"""TrainLog: what it writes, what survives, what it refuses, what it draws."""

from __future__ import annotations

import doctest
import errno
import json
import math
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import msnb.log
from msnb.log import NonFiniteLoss, TrainLog

BATCH = (np.zeros((32, 1, 28, 28), np.float32), np.zeros(32, np.int32))


def strict_lines(path: Path) -> list[dict]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    text = path.read_text(encoding="utf-8")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def child(code: str, *args: object, **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        **kwargs,
    )


# What a line holds


def test_one_line_in_the_file_and_one_on_screen(tmp_path, capsys):
    with TrainLog(tmp_path / "train.jsonl") as log:
        log.step(loss=2.302585, lr=0.01, batch=BATCH, epoch=1, seconds=0.016, acc=0.125)
    (line,) = strict_lines(tmp_path / "train.jsonl")
    assert line == {
        "run": log.run,
        "step": 1,
        "epoch": 1,
        "loss": 2.302585,
        "lr": 0.01,
        "shapes": [[32, 1, 28, 28], [32]],
        "dtypes": ["float32", "int32"],
        "seconds": 0.016,
        "samples_per_s": 2000.0,
        "acc": 0.125,
    }
    shown = "step 1  epoch 1  loss 2.3026  lr 0.01  acc 0.125  2000 samples/s\n"
    assert capsys.readouterr().out == shown


def test_every_thins_the_screen_but_never_the_file(tmp_path, capsys):
    with TrainLog(tmp_path / "t.jsonl", every=3) as log:
        for _ in range(7):
            log.step(loss=1.0)
    assert [line["step"] for line in strict_lines(log.path)] == [1, 2, 3, 4, 5, 6, 7]
    shown = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["step 1", "step 3", "step 6"]


def test_every_0_shows_only_what_is_not_finite(tmp_path, capsys):
    with TrainLog(tmp_path / "t.jsonl", every=0) as log:
        for loss in (1.0, 2.0, math.inf, math.inf, 1.0, math.nan):
            log.step(loss=loss)
    shown = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["step 3", "step 6"]  # the first of each row of them


def test_a_loss_that_turns_nan_is_shown_although_something_else_was_inf_before(tmp_path, capsys):
    with TrainLog(tmp_path / "t.jsonl", every=0) as log:
        for loss in (1.0, 2.0, math.nan, math.nan):
            log.step(loss=loss, norm=math.inf)
    shown = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["step 1", "step 3"]


def test_seconds_are_those_since_the_step_before(tmp_path, monkeypatch):
    clock = iter([10.0, 12.0, 12.5, 14.5, 14.75])  # open; read, end; read, end
    monkeypatch.setattr(msnb.log.time, "perf_counter", lambda: next(clock))
    with TrainLog(tmp_path / "t.jsonl") as log:
        log.step(loss=1.0, batch=BATCH)
        log.step(loss=1.0, batch=BATCH)
    assert [line["seconds"] for line in strict_lines(log.path)] == [2.0, 2.0]
    assert [line["samples_per_s"] for line in strict_lines(log.path)] == [16.0, 16.0]


def test_the_time_of_reading_the_loss_counts(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(msnb.log.time, "perf_counter", lambda: now[0])

    class Late:
        shape = ()

        def item(self):
            now[0] += 3.0  # the device is still at work
            return 1.0

    with TrainLog(tmp_path / "t.jsonl") as log:
        log.step(loss=Late())
    assert strict_lines(log.path)[0]["seconds"] == 3.0


@pytest.mark.parametrize(
    ("batch", "shapes", "dtypes", "samples_per_s"),
    [
        (BATCH[0], [32, 1, 28, 28], "float32", 64.0),
        ({"x": BATCH[0], "y": BATCH[1]}, {"x": [32, 1, 28, 28], "y": [32]},
         {"x": "float32", "y": "int32"}, 64.0),
        (((BATCH[0], np.zeros((32, 4), bool)), BATCH[1]), [[[32, 1, 28, 28], [32, 4]], [32]],
         [["float32", "bool"], "int32"], 64.0),
        ((np.float32(1), np.zeros((8, 2))), [[], [8, 2]], ["float32", "float64"], 16.0),
        ((BATCH[1], ["a.png"] * 32), [[32], [32]], ["int32", "str"], 64.0),
        ((BATCH[1], None), [[32], None], ["int32", None], 64.0),
        (np.float32(1), [], "float32", None),
        ([], [], [], None),
    ],
)  # fmt: skip
def test_batches_of_any_structure(tmp_path, batch, shapes, dtypes, samples_per_s):
    with TrainLog(tmp_path / "t.jsonl") as log:
        log.step(loss=1.0, batch=batch, seconds=0.5)
    (line,) = strict_lines(log.path)
    assert (line["shapes"], line["dtypes"]) == (shapes, dtypes)
    assert line["samples_per_s"] == samples_per_s


def test_chinese_path_spaces_and_missing_folders(tmp_path):
    path = tmp_path / "实验 一" / "new" / "日志.jsonl"
    with TrainLog(path) as log:
        log.step(loss=1.0, 精度=0.5)
    assert TrainLog.read(path)["精度"].tolist() == [0.5]


# Numbers from both frameworks


def test_losses_rates_and_batches_of_torch(tmp_path):
    import torch

    weight = torch.nn.Parameter(torch.tensor([1.5]))
    with TrainLog(tmp_path / "t.jsonl") as log, warnings.catch_warnings():
        warnings.simplefilter("error")
        log.step(loss=(weight * 2).sum(), batch=(torch.zeros(4, 3), torch.zeros(4).long()))
        log.step(loss=weight * 2)
        log.step(loss=torch.tensor(0.5, dtype=torch.bfloat16), lr=torch.tensor(0.25))
    lines = strict_lines(log.path)
    assert [line["loss"] for line in lines] == [3.0, 3.0, 0.5]
    assert (lines[0]["shapes"], lines[0]["dtypes"]) == ([[4, 3], [4]], ["float32", "int64"])
    assert lines[2]["lr"] == 0.25


def test_the_rate_is_the_one_torch_used(tmp_path):
    import torch

    weight = torch.nn.Parameter(torch.tensor(0.0))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    moved = []
    with TrainLog(tmp_path / "t.jsonl") as log:
        for given in (lambda: optimizer, scheduler.get_last_lr, lambda: optimizer):
            before = weight.item()
            weight.grad = torch.tensor(1.0)
            optimizer.step()
            moved.append(before - weight.item())
            log.step(loss=weight, lr=given())
            scheduler.step()
        with pytest.raises(TypeError, match=r"not StepLR: give scheduler\.get_last_lr\(\) or the"):
            log.step(loss=1.0, lr=scheduler)
    assert TrainLog.read(log.path)["lr"].tolist() == moved == [0.5, 0.25, 0.125]


def test_losses_and_batches_of_mindspore(tmp_path):
    import mindspore as ms

    batch = (ms.Tensor(BATCH[0]), ms.Tensor(BATCH[1]))
    with TrainLog(tmp_path / "t.jsonl") as log:
        log.step(loss=ms.Tensor(0.5, ms.float32), lr=ms.Parameter(ms.Tensor(0.25)), batch=batch)
        log.step(loss=ms.Tensor([0.5], ms.float16))
        log.step(loss=ms.Tensor(1.5, ms.float32).astype(ms.bfloat16), overflow=ms.Tensor(True))
        with pytest.raises(ValueError, match=r"not an array of shape \(2,\); .* loss\.mean\(\)"):
            log.step(loss=ms.Tensor([1.0, 2.0]))
    lines = strict_lines(log.path)
    assert [line["loss"] for line in lines] == [0.5, 0.5, 1.5]
    assert (lines[0]["shapes"], lines[0]["dtypes"]) == (
        [[32, 1, 28, 28], [32]],
        ["float32", "int32"],
    )
    assert lines[0]["lr"] == 0.25
    assert lines[2]["overflow"] == 1


def test_the_rate_is_the_one_mindspore_used(tmp_path):
    """Held against how far the weight moved; get_lr() is one step ahead by then."""
    import mindspore as ms
    from mindspore import nn

    steps, start = 3, 1.0
    listed = [0.5, 0.25, 0.125, 0.0625]
    for rate in (0.25, listed, nn.CosineDecayLR(0.0, 1.0, 4)):
        weight = ms.Parameter(ms.Tensor([start], ms.float32), name="w")
        optimizer = nn.SGD([weight], learning_rate=rate)
        moved, ahead = [], []
        with TrainLog(tmp_path / "t.jsonl") as log:
            for _ in range(steps):
                before = weight.asnumpy().copy()
                optimizer((ms.Tensor([1.0], ms.float32),))
                moved.append(float((before - weight.asnumpy())[0]))
                log.step(loss=1.0, lr=optimizer)
                ahead.append(float(optimizer.get_lr()))
        assert TrainLog.read(log.path)["lr"] == pytest.approx(moved, abs=1e-6)
        if rate != 0.25:
            assert ahead != pytest.approx(moved, abs=1e-6)  # so the test above can fail
        if callable(optimizer.learning_rate):  # the schedule alone gives the same
            with TrainLog(tmp_path / "t.jsonl") as log:
                for _ in range(steps):
                    log.step(loss=1.0, lr=optimizer.learning_rate)
            assert TrainLog.read(log.path)["lr"] == pytest.approx(moved, abs=1e-6)


def test_rates_of_groups_and_of_mint(tmp_path):
    import mindspore as ms
    from mindspore import mint, nn

    one, two = (ms.Parameter(ms.Tensor([1.0], ms.float32), name=name) for name in "ab")
    grouped = nn.SGD([{"params": [one], "lr": 0.5}, {"params": [two], "lr": 0.25}], 0.125)
    with TrainLog(tmp_path / "t.jsonl") as log:
        log.step(loss=1.0, lr=grouped)
        log.step(loss=1.0, lr=[0.5, 0.25])
        log.step(loss=1.0, lr=mint.optim.Adam([one], lr=0.5))
        with pytest.raises(TypeError, match="not the network Dense"):
            log.step(loss=1.0, lr=nn.Dense(2, 2))
    rates = TrainLog.read(log.path)["lr"]
    np.testing.assert_array_equal(rates, [[0.5, 0.25], [0.5, 0.25], [0.5, 0.5]])


def test_a_function_as_rate_is_asked_for_the_steps_before_this_one(tmp_path):
    with TrainLog(tmp_path / "t.jsonl") as log:
        for _ in range(3):
            log.step(loss=1.0, lr=lambda done: 1.0 / (1 + done))
        log.step(loss=1.0, lr=lambda done: done, step=101)
    assert TrainLog.read(log.path)["lr"].tolist() == [1.0, 1 / 2, 1 / 3, 100.0]


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"loss": None}, TypeError, "loss is one number, not NoneType None; did the function"),
        ({"loss": (1.0, 2.0)}, TypeError, r"not tuple \(1.0, 2.0\); give one of its elements"),
        ({"loss": "0.5"}, TypeError, "loss is one number, not str '0.5'"),
        ({"loss": True}, TypeError, "loss is one number, not bool True"),
        ({"loss": 1j}, TypeError, "not complex 1j"),
        ({"loss": np.ones(3)}, ValueError, r"shape \(3,\); give for example loss.mean\(\)"),
        ({"loss": np.ones(0)}, ValueError, r"shape \(0,\)"),
        ({"loss": 1.0, "lr": []}, ValueError, "lr is an empty list"),
        ({"loss": 1.0, "lr": "auto"}, TypeError, "lr is one number, not str 'auto'"),
        ({"loss": 1.0, "epoch": "first"}, TypeError, "epoch is one number"),
        ({"loss": 1.0, "step": 1.5}, ValueError, "step is a whole number, 0 or more, not 1.5"),
        ({"loss": 1.0, "acc": [1, 2]}, TypeError, "acc is one number, not list"),
        ({"loss": 1.0, "run": 3}, ValueError, "'run' is a field of every line already"),
        ({"loss": 1.0, "nonfinite": 3}, ValueError, "'nonfinite' is a field"),
    ],
)
def test_what_is_not_a_number_is_refused_and_nothing_is_written(tmp_path, given, error, text):
    with TrainLog(tmp_path / "t.jsonl") as log:
        with pytest.raises(error, match=text):
            log.step(**given)
        assert log.path.read_bytes() == b""
        log.step(loss=np.array([[0.5]], np.float32))
    assert strict_lines(log.path)[0]["step"] == 1


# NaN and Inf


def test_what_is_not_finite_is_flagged_in_both_places(tmp_path, capsys):
    with TrainLog(tmp_path / "t.jsonl") as log:
        for loss in (math.nan, math.inf, -math.inf, 1.0):
            log.step(loss=loss, norm=np.float32("inf"), lr=[0.5, math.nan])
    lines = strict_lines(log.path)  # strict JSON
    assert [line["loss"] for line in lines] == ["nan", "inf", "-inf", 1.0]
    assert [line["nonfinite"] for line in lines] == [["loss", "lr", "norm"]] * 3 + [["lr", "norm"]]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "step 1  loss nan  lr 0.5, nan  norm inf  NOT FINITE: loss, lr, norm"
    data = TrainLog.read(log.path)
    np.testing.assert_array_equal(data["loss"], [np.nan, np.inf, -np.inf, 1.0])
    np.testing.assert_array_equal(data["norm"], [np.inf] * 4)
    assert "nonfinite" not in data


def test_a_finite_loss_is_not_flagged(tmp_path, capsys):
    with TrainLog(tmp_path / "t.jsonl", stop_on_nonfinite=True) as log:
        log.step(loss=3.4e38)
    assert "nonfinite" not in strict_lines(log.path)[0]
    assert "FINITE" not in capsys.readouterr().out


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_stopping_names_the_step_after_the_line_is_written(tmp_path, loss):
    seen = []
    with TrainLog(tmp_path / "t.jsonl", on_step=seen.append, stop_on_nonfinite=True) as log:
        log.step(loss=1.0)
        with pytest.raises(NonFiniteLoss, match=f"loss is {loss} at step 2: stopped") as caught:
            log.step(loss=loss)
    assert caught.value.step == 2
    assert strict_lines(log.path)[-1]["loss"] == str(loss)
    assert [record["step"] for record in seen] == [1, 2]


# The hook


def test_the_hook_gets_the_record_with_real_numbers(tmp_path):
    seen = []
    with TrainLog(tmp_path / "t.jsonl", on_step=seen.append) as log:
        log.step(loss=math.inf, epoch=2, acc=0.5)
    assert (seen[0]["loss"], seen[0]["epoch"], seen[0]["acc"]) == (math.inf, 2, 0.5)
    assert seen[0]["run"] == log.run


def test_a_failing_hook_loses_no_line_and_hides_no_stop(tmp_path):
    def hook(record):
        raise KeyError("no such gauge")

    with TrainLog(tmp_path / "t.jsonl", on_step=hook, stop_on_nonfinite=True) as log:
        with pytest.raises(
            RuntimeError, match="on_step failed at step 1 with KeyError: 'no such gauge'; the line"
        ) as caught:
            log.step(loss=1.0)
        assert isinstance(caught.value.__cause__, KeyError)
        with pytest.raises(NonFiniteLoss, match="at step 2"):
            log.step(loss=math.nan)
    assert [line["step"] for line in strict_lines(log.path)] == [1, 2]


def test_hook_and_every_are_checked_at_once(tmp_path):
    with pytest.raises(TypeError, match=r"on_step is a function of one record .* not 3"):
        TrainLog(tmp_path / "t.jsonl", on_step=3)
    for every in (-1, 1.5, True, "2"):
        with pytest.raises(ValueError, match="every is 1"):
            TrainLog(tmp_path / "t.jsonl", every=every)
    assert not (tmp_path / "t.jsonl").exists()


# Crashes


def test_complete_up_to_the_last_step_after_kill_9(tmp_path):
    path = tmp_path / "t.jsonl"
    killed = child(
        "import os, signal, sys\n"
        "from msnb.log import TrainLog\n"
        "log = TrainLog(sys.argv[1])\n"
        "for step in range(1, 100):\n"
        "    log.step(loss=1 / step)\n"
        "    if step == 37: os.kill(os.getpid(), signal.SIGKILL)\n",
        path,
    )
    assert killed.returncode == -signal.SIGKILL
    assert [line["loss"] for line in strict_lines(path)] == [1 / n for n in range(1, 38)]


def test_opening_again_appends_a_new_run(tmp_path):
    path = tmp_path / "t.jsonl"
    for loss in (1.0, 2.0):
        with TrainLog(path) as log:
            log.step(loss=loss)
    first, second = strict_lines(path)
    assert (first["loss"], second["loss"]) == (1.0, 2.0)
    assert (first["step"], second["step"]) == (1, 1)
    assert first["run"] != second["run"] == log.run
    assert TrainLog.runs(path) == [first["run"], second["run"]]


def test_run_ids_differ_although_everything_is_seeded(tmp_path):
    import random

    ids = set()
    for _ in range(20):
        random.seed(0)
        np.random.seed(0)
        with TrainLog(tmp_path / "t.jsonl") as log:
            ids.add(log.run)
    assert len(ids) == 20


@pytest.mark.parametrize("keep", [1, 7, 40, -1])
def test_a_torn_last_line_is_skipped_and_never_glued_to_the_next(tmp_path, keep):
    path = tmp_path / "t.jsonl"
    with TrainLog(path) as log:
        for loss in (1.0, 2.0, 3.0):
            log.step(loss=loss)
    *whole, last, _ = path.read_bytes().split(b"\n")
    torn = b"\n".join([*whole, last[:keep]])
    path.write_bytes(torn)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TrainLog.read(path)["loss"].tolist() == [1.0, 2.0]
        with TrainLog(path) as log:
            log.step(loss=4.0)
        assert TrainLog.read(path)["loss"].tolist() == [4.0]
        assert TrainLog.read(path, 0)["loss"].tolist() == [1.0, 2.0]
    assert path.read_bytes().startswith(torn + b"\n{")  # nothing was lost


def test_a_whole_last_line_without_its_end_is_kept(tmp_path):
    path = tmp_path / "t.jsonl"
    with TrainLog(path) as log:
        log.step(loss=1.0)
    path.write_bytes(path.read_bytes()[:-1])
    with TrainLog(path) as log:
        log.step(loss=2.0)
    assert [line["loss"] for line in strict_lines(path)] == [1.0, 2.0]


def test_opening_alone_changes_nothing(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"run": "a", "st')
    TrainLog(path).close()
    assert path.read_bytes() == b'{"run": "a", "st'


def test_two_runs_at_a_time_keep_their_lines(tmp_path):
    path = tmp_path / "t.jsonl"
    with TrainLog(path) as one, TrainLog(path) as two:
        for step in range(5):
            one.step(loss=step)
            two.step(loss=10 + step)
    assert TrainLog.read(path, one.run)["loss"].tolist() == [0, 1, 2, 3, 4]
    assert TrainLog.read(path, two.run)["loss"].tolist() == [10, 11, 12, 13, 14]


def test_a_log_deleted_while_training_is_started_again_aloud(tmp_path):
    log = TrainLog(tmp_path / "runs" / "t.jsonl")
    log.step(loss=1.0)
    log.path.unlink()
    log.path.parent.rmdir()
    with pytest.warns(UserWarning, match=r"was deleted: started again; the 1 lines .* are gone"):
        log.step(loss=2.0)
    log.step(loss=3.0)
    log.close()
    assert TrainLog.read(log.path)["step"].tolist() == [2, 3]


@pytest.mark.parametrize("left", [0, 3])
def test_a_log_cut_off_while_training_goes_on_aloud(tmp_path, left):
    log = TrainLog(tmp_path / "t.jsonl")
    log.step(loss=1.0)
    log.step(loss=2.0)
    os.truncate(log.path, left)
    with pytest.warns(UserWarning, match=rf"cut off at byte {left}: some or all of the 2 lines"):
        log.step(loss=3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log.step(loss=4.0)
    log.close()
    assert [json.loads(line)["step"] for line in log.path.read_text().splitlines()[-2:]] == [3, 4]


def test_steps_and_seconds_that_go_back_are_refused(tmp_path):
    with TrainLog(tmp_path / "t.jsonl") as log:
        log.step(loss=1.0, step=5, seconds=0)
        log.step(loss=1.0, step=5)
        for step, text in ((4, "step 4 after step 5: the steps of a run do not go back"),
                           (-1, "step is a whole number, 0 or more, not -1")):  # fmt: skip
            with pytest.raises(ValueError, match=text):
                log.step(loss=1.0, step=step)
        with pytest.raises(ValueError, match="seconds is the time a step took, 0 or more, not -2"):
            log.step(loss=1.0, seconds=-2)
        log.step(loss=1.0)
    assert TrainLog.read(log.path)["step"].tolist() == [5, 5, 6]


def test_a_path_that_no_system_takes_is_named():
    for path, error, text in [
        ("~nobody-of-that-name/t.jsonl", ValueError, "no home folder for '~nobody-of-that-name'"),
        ("runs/\0.jsonl", ValueError, "holds no NUL character"),
        ("x" * 300, OSError, "cannot write the training log .* a name in it is too long"),
        ("x" * 300 + "/t.jsonl", OSError, "a name in it is too long; give a shorter one"),
    ]:
        with pytest.raises(error, match=text):
            TrainLog(path)


# Where it cannot write


def test_a_path_that_cannot_be_written_fails_before_training(tmp_path):
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "fifo")
    for path, error, text in [
        (tmp_path, IsADirectoryError, r"is a folder; give a file in it, .* '.*train.jsonl"),
        (tmp_path / "file" / "t.jsonl", OSError, r"file' is a file, not a folder; give another"),
        (tmp_path / "file" / "a" / "t.jsonl", OSError, "is a file, not a folder"),
        ("/proc/no/t.jsonl", OSError, "cannot write the training log '/proc/no/t.jsonl': no such"),
        (tmp_path / "fifo", OSError, "it is a pipe or a socket; give a path"),
        ("", ValueError, "needs a path such as 'runs/train.jsonl', not ''"),
        (None, ValueError, "not None"),
    ]:  # fmt: skip
        with pytest.raises(error, match=text):
            TrainLog(path)


def test_no_permission_names_the_path(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):  # root, who may run this, is refused nothing
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(PermissionError, match=r"t\.jsonl': permission denied; give a path in a"):
        TrainLog(tmp_path / "t.jsonl")


def test_a_file_of_somebody_else_is_not_appended_to(tmp_path):
    for text in ("import torch\n", '{"cells": []}', "\x00\x01"):
        (tmp_path / "train.py").write_text(text)
        with pytest.raises(ValueError, match="exists and is not a training log"):
            TrainLog(tmp_path / "train.py")
        assert (tmp_path / "train.py").read_text() == text


def test_a_disk_already_full_fails_before_training(tmp_path, monkeypatch):
    full = SimpleNamespace(f_blocks=100, f_bfree=0, f_bavail=0)
    monkeypatch.setattr(msnb.log.os, "statvfs", lambda file: full)
    with pytest.raises(OSError, match="the disk is full; free some space") as caught:
        TrainLog(tmp_path / "t.jsonl")
    assert caught.value.errno == errno.ENOSPC


def test_a_full_device_says_so_and_shows_the_line(capsys):
    with TrainLog("/dev/full", every=0) as log:
        with pytest.raises(
            OSError, match=r"step 1 could not be written .*: no space left"
        ) as caught:
            log.step(loss=0.5)
        assert caught.value.errno == errno.ENOSPC
    assert capsys.readouterr().out == "step 1  loss 0.5000\n"


def test_a_disk_that_fills_up_loses_no_line_and_tears_none(tmp_path):
    """A limit on the file's size stops a write midway, as a full disk does."""
    path = tmp_path / "t.jsonl"
    result = child(
        "import resource, sys\n"
        "from msnb.log import TrainLog\n"
        "log = TrainLog(sys.argv[1], every=0)\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))\n"
        "try:\n"
        "    for step in range(1, 100):\n"
        "        log.step(loss=step)\n"
        "except OSError as error:\n"
        "    print(error)\n"
        "    print(open(sys.argv[1], 'rb').read().endswith(b'}\\n'))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))\n"
        "log.step(loss=1000)\n",
        path,
    )
    assert result.returncode == 0, result.stderr
    steps = [line["step"] for line in strict_lines(path)]
    lost = steps[-1] - 1  # the step that did not fit; the one after it did again
    assert steps == [*range(1, lost), lost + 1]
    assert lost > 3
    line, message, whole = result.stdout.splitlines()
    assert line.startswith(f"step {lost}  loss")
    assert f"step {lost} could not be written to" in message
    assert f"safe: {lost - 1}; free some space, and the log can go on" in message
    assert whole == "True"


def test_after_close(tmp_path):
    log = TrainLog(tmp_path / "t.jsonl")
    log.close()
    log.close()
    with pytest.raises(ValueError, match=r"t\.jsonl' is closed; open a new TrainLog"):
        log.step(loss=1.0)


# Reading


def test_read_gives_arrays(tmp_path):
    with TrainLog(tmp_path / "t.jsonl") as log:
        log.step(loss=1.5, lr=0.1, epoch=1, batch=BATCH, seconds=0.5)
        log.step(loss=0.5, lr=0.2, epoch=2, acc=0.25)
    data = TrainLog.read(log.path)
    assert data["step"].dtype == data["epoch"].dtype == np.int64
    assert data["loss"].dtype == data["lr"].dtype == np.float64
    assert data["loss"].tolist() == [1.5, 0.5]
    assert data["lr"].tolist() == [0.1, 0.2]
    assert data["epoch"].tolist() == [1, 2]
    np.testing.assert_array_equal(data["acc"], [np.nan, 0.25])
    np.testing.assert_array_equal(data["samples_per_s"], [64.0, np.nan])
    assert data["shapes"].tolist() == [[[32, 1, 28, 28], [32]], None]
    assert {len(column) for column in data.values()} == {2}


def test_epochs_with_gaps_or_fractions_are_floats(tmp_path):
    with TrainLog(tmp_path / "t.jsonl") as log:
        log.step(loss=1.0, epoch=0.5)
        log.step(loss=1.0)
    np.testing.assert_array_equal(TrainLog.read(log.path)["epoch"], [0.5, np.nan])


def test_a_bad_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "t.jsonl"
    with TrainLog(path) as log:
        for loss in (1.0, 2.0, 3.0):
            log.step(loss=loss)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], lines[1][:30], *lines[2:]]))
    with pytest.warns(UserWarning, match="line 2: not a line of a training log, skipped: '{\"run"):
        data = TrainLog.read(path)
    assert data["loss"].tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    "foreign",
    [
        '{"run": 1, "step": 1, "loss": 1.0}',
        '{"run": "a", "step": "x", "loss": 1.0}',
        '{"run": "a", "step": 99999999999999999999, "loss": 1.0}',
        '{"run": "a", "step": 1, "loss": {"mean": 1.0}}',
        '{"run": "a", "step": 1, "loss": 1.0, "lr": [[0.1]]}',
        '{"run": "a", "step": 1, "loss": 1.0, "acc": "good"}',
        "[" * 100_000,
    ],
)
def test_a_line_that_step_never_wrote_spoils_no_other(tmp_path, foreign):
    path = tmp_path / "log.jsonl"
    with TrainLog(path, every=0) as log:
        log.step(loss=1.5, lr=[0.1, float("nan")])
    lines = path.read_text()
    path.write_text(f"{lines}{foreign}\n{lines}")
    with pytest.warns(UserWarning, match="line 2: not a line of a training log, skipped"):
        assert TrainLog.read(path)["loss"].tolist() == [1.5, 1.5]
    path.write_text(f"{foreign}\n")
    with pytest.raises(ValueError, match="is not a training log: line 1 begins with"):
        TrainLog.read(path)


@pytest.mark.parametrize("given", [{"step": 10**30}, {"loss": 10**400}, {"acc": 2**64}])
def test_a_number_too_large_to_be_read_back_is_refused(tmp_path, given):
    log = TrainLog(tmp_path / "log.jsonl")
    with pytest.raises(ValueError, match=r"64 bits|whole number"):
        log.step(**{"loss": 1.0, **given})
    assert log.path.read_bytes() == b""


def test_reading_what_is_not_there(tmp_path):
    path = tmp_path / "t.jsonl"
    with pytest.raises(FileNotFoundError, match=r"there is no training log: '.*t\.jsonl'"):
        TrainLog.read(path)
    with pytest.raises(IsADirectoryError, match="a training log is a file, and this is a folder"):
        TrainLog.read(tmp_path)
    path.write_text('{"run": "a", "st')
    with pytest.raises(ValueError, match="has no complete line yet"):
        TrainLog.read(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="is not a training log: line 1 begins with 'a,b'"):
        TrainLog.read(path)
    path.write_text('{"run": "a", "step": 1, "loss": 2.0}\n')
    for run in (1, -2, "b"):
        with pytest.raises(ValueError, match=f"has no run {run!r}; it has 1: a"):
            TrainLog.read(path, run)


# Drawing


def lines_of(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_plot_draws_each_log_and_marks_what_is_not_finite(tmp_path):
    with TrainLog(tmp_path / "torch.jsonl") as one, TrainLog(tmp_path / "ms.jsonl") as two:
        for step in range(1, 6):
            one.step(loss=1 / step, lr=0.1 / step)
            two.step(loss=math.nan if step in (2, 4) else 2 / step, lr=0.2 / step)
    figure = one.plot(two, labels=["PyTorch", "MindSpore"])
    top, bottom = figure.axes
    drawn = lines_of(top)
    assert list(drawn) == ["PyTorch", "MindSpore", "MindSpore: not finite (2 steps)"]
    np.testing.assert_array_equal(drawn["PyTorch"].get_ydata(), 1 / np.arange(1, 6))
    assert drawn["MindSpore: not finite (2 steps)"].get_xdata().tolist() == [2, 4]
    np.testing.assert_allclose(bottom.get_lines()[1].get_ydata(), 0.2 / np.arange(1, 6))
    assert top.get_ylabel() == "loss"
    assert (bottom.get_xlabel(), bottom.get_ylabel()) == ("step", "learning rate")
    assert drawn["PyTorch"].get_linestyle() != drawn["MindSpore"].get_linestyle()
    figure.savefig(tmp_path / "figure.png")
    boxes = [axes.get_window_extent() for axes in figure.axes]
    legend = figure.legends[0].get_window_extent()
    assert not boxes[0].overlaps(boxes[1])
    assert not any(box.overlaps(legend) for box in boxes)


def test_plot_shows_a_figure_once_in_a_notebook(tmp_path):
    import matplotlib.pyplot as plt

    with TrainLog(tmp_path / "t.jsonl") as log:
        log.step(loss=1.0)
    before = plt.get_fignums()
    assert len(log.plot().axes) == 1  # no rate, no second panel
    assert plt.get_fignums() == before


def test_plot_takes_paths_and_columns_and_the_current_run_only(tmp_path):
    path = tmp_path / "t.jsonl"
    for loss in (1.0, 2.0):
        with TrainLog(path) as log:
            log.step(loss=loss)
    figure = log.plot(path, TrainLog.read(path, 0))
    drawn = figure.axes[0].get_lines()
    assert [line.get_ydata().tolist() for line in drawn] == [[2.0], [2.0], [1.0]]
    first, second = TrainLog.runs(path)
    assert [line.get_label() for line in drawn] == [f"t {second}", f"t {second}", first]
    with TrainLog(path) as unused:
        assert unused.plot().axes[0].get_lines()[0].get_ydata().tolist() == [2.0]


def test_plot_of_many_steps_has_a_running_mean_and_a_log_axis(tmp_path):
    with TrainLog(tmp_path / "t.jsonl", every=0) as log:
        for step in range(200):
            log.step(loss=100 * 0.9**step * (1.5 if step % 2 else 0.5))
    (axes,) = log.plot().axes
    single, mean = (line.get_ydata() for line in axes.get_lines())
    assert axes.get_yscale() == "log"
    assert axes.get_ylabel() == "loss (log scale)"
    assert "bold: mean of 5" in axes.get_xlabel()
    expected = [np.mean(single[max(i - 2, 0) : i + 3]) for i in range(200)]
    np.testing.assert_allclose(mean, expected, rtol=1e-9)


def test_plot_where_nothing_is_finite(tmp_path):
    with TrainLog(tmp_path / "t.jsonl") as log:
        log.step(loss=math.nan)
    log.plot().savefig(tmp_path / "figure.png")


def test_plot_refuses(tmp_path):
    with TrainLog(tmp_path / "t.jsonl") as log:
        with pytest.raises(ValueError, match="has no complete line yet"):
            log.plot()
        log.step(loss=1.0)
    for labels in (["a", "b"], "a"):
        with pytest.raises(ValueError, match="1 logs need 1 labels in a list, not"):
            log.plot(labels=labels)
    with pytest.raises(ValueError, match=r"come from TrainLog\.read\(path\); no 'step'"):
        log.plot({"loss": np.ones(2)})


def test_examples():
    result = doctest.testmod(msnb.log)
    assert result.attempted >= 8
    assert result.failed == 0

"""What a step of TrainLog costs beyond reading the loss: at most 100 µs."""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

from benchmarks import Row, in_turns
from msnb import TrainLog

LIMIT = 100e-6


def rows() -> Iterator[Row]:
    import mindspore
    import torch

    x = [[0.0] * 784] * 32
    for name, tensor, dtypes in (
        ("MindSpore", mindspore.Tensor, (mindspore.float32, mindspore.int32)),
        ("PyTorch", torch.tensor, (torch.float32, torch.int64)),
    ):
        loss = tensor(2.3026, dtype=dtypes[0])
        batch = (tensor(x, dtype=dtypes[0]), tensor([0] * 32, dtype=dtypes[1]))
        yield from _rows(name, loss, batch)


def _rows(name: str, loss: object, batch: object) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        log = TrainLog(Path(folder, "log.jsonl"))

        def step() -> None:
            log.step(loss=loss, lr=0.01, batch=batch, epoch=1, acc=0.5)

        def read() -> None:
            loss.item()

        with open(Path(folder, "bare.jsonl"), "w", encoding="utf-8") as bare:

            def line() -> None:
                record = {"step": 1, "epoch": 1, "loss": loss.item(), "lr": 0.01, "acc": 0.5}
                bare.write(json.dumps(record) + "\n")
                bare.flush()

            # A real file under the screen's line, so that its write and flush are counted.
            with (
                open(Path(folder, "screen.txt"), "w", encoding="utf-8") as screen,
                redirect_stdout(screen),
            ):
                assert isinstance(sys.stdout, io.TextIOWrapper)
                stepped, reading, written = in_turns(step, read, line, turns=30, calls=300)
        log.close()
    yield Row(f"step, {name} tensors", stepped, reading, "reading the loss", LIMIT, beyond=True)
    yield Row(
        f"step, {name} tensors",
        stepped,
        written,
        "loss read, json.dumps, write, flush, nothing on screen",
    )

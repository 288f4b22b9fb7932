"""What check_migration costs beside the bare forward, backward and steps: at most three times.

In PyNative mode, which compiles nothing of the net: one forward pass in evaluation and one in
training mode, the steps, and the optimizer fed as often again, on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

from benchmarks import Row, in_turns
from msnb import check_migration, nets

TIMES = 3.0
STEPS = 3


def rows() -> Iterator[Row]:
    import mindspore as ms
    import torch
    from mindspore import nn

    rng = np.random.default_rng(0)
    x = rng.standard_normal((16, 1, 32, 32)).astype(np.float32)
    y = rng.integers(0, 10, 16).astype(np.int64)
    losses = torch.nn.CrossEntropyLoss(), nn.CrossEntropyLoss()

    def made() -> tuple[Any, ...]:
        torch_net, ms_net = nets.LeNet(seed=0)
        return (
            torch_net,
            ms_net,
            torch.optim.SGD(torch_net.parameters(), 1e-3, momentum=0.9),
            nn.SGD(ms_net.trainable_params(), 1e-3, momentum=0.9),
        )

    torch_net, ms_net, *optimizers = made()

    def check() -> None:
        check_migration(
            torch_net,
            ms_net,
            (x, y),
            loss=losses,
            optimizer=tuple(optimizers),
            steps=STEPS,
            modes=["pynative"],
        ).require()

    bare_torch, bare_ms, torch_optimizer, ms_optimizer = made()  # this one trains on and on
    torch_x, torch_y = torch.from_numpy(x), torch.from_numpy(y)
    ms_x, ms_y = ms.Tensor(x), ms.Tensor(y.astype(np.int32))

    def forward(x: Any, y: Any) -> Any:
        return losses[1](bare_ms(x), y)

    gradient = ms.value_and_grad(forward, None, ms_optimizer.parameters)

    def bare() -> None:
        with torch.no_grad():
            bare_torch(torch_x)
            bare_torch(torch_x)
        for _ in range(STEPS):
            torch_optimizer.zero_grad()
            losses[0](bare_torch(torch_x), torch_y).backward()
            torch_optimizer.step()
            torch_optimizer.step()
        bare_ms(ms_x).asnumpy()
        bare_ms(ms_x).asnumpy()
        for _ in range(STEPS):
            value, grads = gradient(ms_x, ms_y)
            ms_optimizer(grads)
            ms_optimizer(grads)
            value.asnumpy()

    checked, plain = in_turns(check, bare, turns=5)
    yield Row(
        "LeNet, batch of 16, 3 steps",
        checked,
        plain,
        "bare passes and steps",
        limit=TIMES * median(plain),
    )

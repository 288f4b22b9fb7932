"""What a probe costs: under a second for exp, in the live process and isolated.

A convolution has no limit: MindSpore's on CPU is slow, and a probe calls it some 20 times.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from benchmarks import Row, in_turns

LIMIT = 1.0


def rows() -> Iterator[Row]:
    # Before MindSpore is imported: its complaints about inputs on purpose are no part of the result
    os.environ.setdefault("GLOG_v", "4")
    import mindspore as ms
    import numpy as np
    import torch
    from mindspore import ops

    from msnb.parity import probe

    x = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
    image = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    kernel = np.random.default_rng(2).standard_normal((4, 3, 3, 3)).astype(np.float32)

    def torch_conv(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv2d(a, w, padding=1)

    def ms_conv(a: ms.Tensor, w: ms.Tensor) -> ms.Tensor:
        return ops.conv2d(a, w, pad_mode="pad", padding=1)

    for name, pair, arrays in (
        ("exp, 32x32", (torch.exp, ops.exp), [x]),
        ("conv2d, 3x8x8", (torch_conv, ms_conv), [image, kernel]),
    ):
        bare = _bare(
            pair, [[make(array) for array in arrays] for make in (torch.tensor, ms.Tensor)]
        )
        default, eager, called = in_turns(
            lambda pair=pair, arrays=arrays: probe(*pair, arrays),
            lambda pair=pair, arrays=arrays: probe(*pair, arrays, modes=("pynative",)),
            bare,
            turns=7,
        )
        limit = LIMIT if pair[0] is torch.exp else None
        yield Row(f"probe {name}", default, called, "each function called once", limit)
        yield Row(f"probe {name}, pynative only", eager, called, "each function called once", limit)
    isolated, called = in_turns(
        lambda: probe(torch.exp, ops.exp, [x], isolate=True),
        lambda: probe(torch.exp, ops.exp, [x]),
        turns=7,
    )
    yield Row(
        "probe exp, 32x32, isolate=True, warm", isolated, called, "in the live process", LIMIT
    )


def _bare(
    pair: tuple[Callable[..., object], ...], tensors: list[list[object]]
) -> Callable[[], None]:
    def call() -> None:
        pair[0](*tensors[0])
        pair[1](*tensors[1]).asnumpy()  # type: ignore[attr-defined]

    return call

"""Twin networks: the same net in PyTorch and in MindSpore, with the same weights.

``torch_net, ms_net = LeNet(seed=0)`` makes both; ``LeNet.torch()`` and ``LeNet.mindspore()`` make
one, with the same weights for the same seed. PyTorch initialises, under that seed; the weights are
then copied to MindSpore by name. No global random state is left changed.

Both nets are in training mode, in which PyTorch's start anyway; MindSpore's would start in
evaluation mode.

A LeNet that circulates in migration articles is not here on purpose: two padded 3 x 3
convolutions, 3 to 16 to 32 channels, then a dense layer for 32 x 8 x 8 values. The pooling was lost
on the way, so 32 x 32 values of each channel arrive there, and the net cannot run. Notebook 02 lets
the reader find that.

>>> torch_net, ms_net = LeNet(seed=0)
>>> bool((torch_net.fc3.bias.detach().numpy() == ms_net.fc3.bias.asnumpy()).all())
True
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["LeNet", "Twin"]


class Twin(ABC):
    """A net written in both frameworks. A subclass gives both classes and the parameters' names.

    ``names`` maps each of PyTorch's parameter and buffer names to MindSpore's; ``copy_weights``
    takes none for granted.
    """

    names: dict[str, str]

    @abstractmethod
    def torch_class(self) -> Any:
        """The ``torch.nn.Module`` class."""

    @abstractmethod
    def mindspore_class(self) -> Any:
        """The ``mindspore.nn.Cell`` class."""

    def _torch(self, seed: int, *args: Any) -> Any:
        import torch

        seed = _whole("seed", seed, 0)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return self.torch_class()(*args).train()

    def _mindspore(self, torch_net: Any, *args: Any) -> Any:
        # MindSpore's initialisers draw from NumPy's global random state.
        state = np.random.get_state()
        try:
            ms_net = self.mindspore_class()(*args)
        finally:
            np.random.set_state(state)
        self.copy_weights(torch_net, ms_net)
        return ms_net.set_train()

    def copy_weights(self, torch_net: Any, ms_net: Any) -> None:
        """Copy every weight of ``torch_net`` into ``ms_net``.

        Raises ``ValueError`` unless ``names`` covers exactly the parameters of both nets and their
        shapes and dtypes agree.
        """
        import mindspore

        source = {name: value.detach().numpy() for name, value in torch_net.state_dict().items()}
        target = ms_net.parameters_dict()
        for side, have, want in (
            ("PyTorch", set(source), set(self.names)),
            ("MindSpore", set(target), set(self.names.values())),
        ):
            if have != want:
                raise ValueError(
                    f"{type(torch_net).__name__}: {side}'s parameters are {sorted(have)}, "
                    f"but the names to copy are {sorted(want)}"
                )
        for torch_name, ms_name in self.names.items():
            array, parameter = source[torch_name], target[ms_name]
            value = mindspore.Tensor(array)
            if tuple(parameter.shape) != array.shape or parameter.dtype != value.dtype:
                raise ValueError(
                    f"{torch_name} is {array.dtype}{array.shape}, but MindSpore's {ms_name} is "
                    f"{parameter.dtype}{tuple(parameter.shape)}"
                )
            mindspore.ops.assign(parameter, value)


class _LeNet(Twin):
    """LeNet-5 for 32 x 32 images: LeCun et al. 1998, with ReLU and max-pooling as usual today.

    Images ``(n, channels, 32, 32)`` float32 to logits ``(n, num_classes)`` float32. With one
    channel and ten classes it has 61,706 weights.

    ``LeNet(channels=1, num_classes=10, seed=0)`` returns ``(torch_net, ms_net)``;
    ``LeNet.torch(...)`` and ``LeNet.mindspore(...)`` return one of them, same arguments.

    Raises ``ValueError`` for channels other than 1 and 3, and ``ValueError`` or ``TypeError`` where
    ``num_classes`` is not a positive or ``seed`` not a whole number.

    >>> torch_net, ms_net = LeNet(seed=1)  # doctest: +SKIP
    >>> LeNet.torch(channels=3).conv1.weight.shape  # doctest: +SKIP
    torch.Size([6, 3, 5, 5])
    """

    names = {  # noqa: RUF012
        "conv1.weight": "conv1.weight",
        "conv1.bias": "conv1.bias",
        "conv2.weight": "conv2.weight",
        "conv2.bias": "conv2.bias",
        "fc1.weight": "fc1.weight",
        "fc1.bias": "fc1.bias",
        "fc2.weight": "fc2.weight",
        "fc2.bias": "fc2.bias",
        "fc3.weight": "fc3.weight",
        "fc3.bias": "fc3.bias",
    }

    def __call__(self, channels: int = 1, num_classes: int = 10, seed: int = 0) -> tuple[Any, Any]:
        torch_net = self.torch(channels, num_classes, seed)
        return torch_net, self._mindspore(torch_net, channels, num_classes)

    def torch(self, channels: int = 1, num_classes: int = 10, seed: int = 0) -> Any:
        """The ``torch.nn.Module`` alone."""
        _check(channels, num_classes)
        return self._torch(seed, channels, num_classes)

    def mindspore(self, channels: int = 1, num_classes: int = 10, seed: int = 0) -> Any:
        """The ``mindspore.nn.Cell`` alone; its weights still come from PyTorch."""
        return self(channels, num_classes, seed)[1]

    def torch_class(self) -> Any:
        return _torch_lenet()

    def mindspore_class(self) -> Any:
        return _mindspore_lenet()


@lru_cache(maxsize=1)
def _torch_lenet() -> Any:
    from torch import nn

    class LeNet(nn.Module):  # type: ignore[misc]
        def __init__(self, channels: int, num_classes: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(channels, 6, 5)
            self.conv2 = nn.Conv2d(6, 16, 5)
            self.pool = nn.MaxPool2d(2)
            self.relu = nn.ReLU()
            self.flatten = nn.Flatten()
            self.fc1 = nn.Linear(16 * 5 * 5, 120)
            self.fc2 = nn.Linear(120, 84)
            self.fc3 = nn.Linear(84, num_classes)

        def forward(self, x: Any) -> Any:
            x = self.pool(self.relu(self.conv1(x)))  # (n, 6, 14, 14)
            x = self.pool(self.relu(self.conv2(x)))  # (n, 16, 5, 5)
            x = self.flatten(x)  # (n, 400)
            x = self.relu(self.fc1(x))
            x = self.relu(self.fc2(x))
            return self.fc3(x)

    return LeNet


@lru_cache(maxsize=1)
def _mindspore_lenet() -> Any:
    from mindspore import nn

    class LeNet(nn.Cell):  # type: ignore[misc]
        def __init__(self, channels: int, num_classes: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(channels, 6, 5, pad_mode="valid", has_bias=True)
            self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid", has_bias=True)
            self.pool = nn.MaxPool2d(2, 2)
            self.relu = nn.ReLU()
            self.flatten = nn.Flatten()
            self.fc1 = nn.Dense(16 * 5 * 5, 120)
            self.fc2 = nn.Dense(120, 84)
            self.fc3 = nn.Dense(84, num_classes)

        def construct(self, x: Any) -> Any:
            x = self.pool(self.relu(self.conv1(x)))  # (n, 6, 14, 14)
            x = self.pool(self.relu(self.conv2(x)))  # (n, 16, 5, 5)
            x = self.flatten(x)  # (n, 400)
            x = self.relu(self.fc1(x))
            x = self.relu(self.fc2(x))
            return self.fc3(x)

    return LeNet


def _check(channels: object, num_classes: object) -> None:
    if isinstance(channels, bool) or channels not in (1, 3):
        raise ValueError(f"channels is 1 (grey) or 3 (colour), not {channels!r}")
    _whole("num_classes", num_classes, 1)


def _whole(name: str, value: object, least: int) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} is a whole number, not {value!r}") from None
    if isinstance(value, bool) or number < least:
        raise ValueError(f"{name} is a whole number, {least} or more, not {value!r}")
    return number


LeNet = _LeNet()

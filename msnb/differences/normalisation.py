"""Normalisation: momentum, epsilon, training flag, names, axes."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import nn, ops

from msnb.differences import Observation, Raised, attempt, difference

Array = np.ndarray[Any, Any]


def _image(*shape: int) -> Array:
    return np.random.default_rng(0).normal(1, 2, size=shape).astype(np.float32)


def _both(torch_layer: Any, ms_layer: Any, x: Array) -> tuple[Any, Any]:
    return torch_layer(torch.tensor(x)), attempt(ms_layer, ms.Tensor(x))


def _names(cell: Any) -> tuple[str, ...]:
    return tuple(name for name, _ in cell.parameters_and_names())


def _torch_running(x: Array, **settings: Any) -> torch.Tensor:
    layer = torch.nn.BatchNorm2d(x.shape[1], **settings)
    layer(torch.tensor(x))
    assert layer.running_mean is not None
    return layer.running_mean


def _ms_running(x: Array, train: bool = True, **settings: Any) -> Any:
    layer = nn.BatchNorm2d(x.shape[1], **settings)
    if train:
        layer.set_train()
    layer(ms.Tensor(x))
    return layer.moving_mean.value()


@difference(
    "batch-norm-momentum",
    "`momentum` of `nn.BatchNorm2d` is the share of the old value that is kept, PyTorch's that of "
    "the new one: copied over, 0.1 forgets nine tenths a step. (`ops.batch_norm` has PyTorch's.)",
    torch="nn.BatchNorm2d(3, momentum=0.1)",
    mindspore="nn.BatchNorm2d(3, momentum=0.1)",
    expected="differs",
    remedy="nn.BatchNorm2d(3, momentum=0.9)",
)
def batch_norm_momentum() -> Observation:
    x = _image(4, 3, 3, 3)
    right = _torch_running(x, momentum=0.1)
    return Observation(
        torch=right,
        mindspore=_ms_running(x, momentum=0.1),
        claim=(0.9 * x.astype(np.float64).mean(axis=(0, 2, 3))).astype(np.float32),
        neighbour=(right, _ms_running(x, momentum=0.9)),
    )


@difference(
    "functional-momentum",
    "`ops.batch_norm` takes PyTorch's momentum: the 0.9 of `nn.BatchNorm2d` carried over to it "
    "forgets nine tenths a step.",
    torch="nn.BatchNorm2d(3)",
    mindspore="ops.batch_norm(x, mean, variance, weight, bias, training=True, momentum=0.9)",
    expected="differs",
    remedy="ops.batch_norm(x, mean, variance, weight, bias, training=True, momentum=0.1)",
)
def functional_momentum() -> Observation:
    x = _image(4, 3, 3, 3)
    right = _torch_running(x)

    def running(momentum: float) -> Any:
        zero, one = np.zeros(3, np.float32), np.ones(3, np.float32)
        mean, variance, weight, bias = (
            ms.Parameter(ms.Tensor(values)) for values in (zero, one, one, zero)
        )
        ops.batch_norm(
            ms.Tensor(x), mean, variance, weight, bias, training=True, momentum=momentum
        ).asnumpy()
        return mean.value()

    return Observation(
        torch=right,
        mindspore=running(0.9),
        claim=(0.9 * x.astype(np.float64).mean(axis=(0, 2, 3))).astype(np.float32),
        neighbour=(right, running(0.1)),
    )


@difference(
    "training-flag",
    "A new layer is in evaluation mode: `nn.BatchNorm2d` neither uses nor collects statistics "
    "until `set_train()`.",
    torch="nn.BatchNorm2d(3)",
    mindspore="nn.BatchNorm2d(3)",
    expected="differs",
    remedy="net.set_train()",
)
def training_flag() -> Observation:
    x = _image(4, 3, 3, 3)
    normalised, mindspore = _both(torch.nn.BatchNorm2d(3), nn.BatchNorm2d(3), x)
    return Observation(
        torch=(normalised, _torch_running(x)),
        mindspore=(mindspore, _ms_running(x, train=False)),
        claim=((x / np.sqrt(1 + 1e-5)).astype(np.float32), np.zeros(3, np.float32)),
        neighbour=_both(torch.nn.BatchNorm2d(3), nn.BatchNorm2d(3).set_train(), x),
    )


@difference(
    "parameter-names",
    "Weight and bias of a normalisation are `gamma` and `beta`, the running statistics "
    "`moving_mean` and `moving_variance`; there is no counter of batches.",
    torch="nn.BatchNorm2d(3).state_dict()",
    mindspore="nn.BatchNorm2d(3).parameters_and_names()",
    expected="differs",
    remedy="msnb.copy_weights(torch_net, ms_net)",
)
def parameter_names() -> Observation:
    return Observation(
        torch=tuple(torch.nn.BatchNorm2d(3).state_dict()),
        mindspore=_names(nn.BatchNorm2d(3)),
        claim=("moving_mean", "moving_variance", "gamma", "beta"),
        neighbour=(tuple(torch.nn.Linear(2, 3).state_dict()), _names(nn.Dense(2, 3))),
    )


@difference(
    "parameters-include-statistics",
    "The running statistics are parameters: `get_parameters()` has twice the numbers that "
    "PyTorch's `parameters()` has.",
    torch="sum(p.numel() for p in nn.BatchNorm2d(3).parameters())",
    mindspore="sum(p.size for p in nn.BatchNorm2d(3).get_parameters())",
    expected="differs",
    remedy="net.trainable_params()",
)
def parameters_include_statistics() -> Observation:
    learned = sum(p.numel() for p in torch.nn.BatchNorm2d(3).parameters())
    layer = nn.BatchNorm2d(3)
    return Observation(
        torch=learned,
        mindspore=sum(p.size for p in layer.get_parameters()),
        claim=4 * 3,
        neighbour=(learned, sum(p.size for p in layer.trainable_params())),
    )


@difference(
    "affine-false",
    "With `affine=False` gamma and beta still are parameters, frozen ones, and in the checkpoint.",
    torch="nn.BatchNorm2d(3, affine=False).parameters()",
    mindspore="nn.BatchNorm2d(3, affine=False).get_parameters()",
    expected="differs",
    remedy="net.trainable_params()",
)
def affine_false() -> Observation:
    learned = len(list(torch.nn.BatchNorm2d(3, affine=False).parameters()))
    layer = nn.BatchNorm2d(3, affine=False)
    statistics = ("moving_mean", "moving_variance")
    return Observation(
        torch=learned,
        mindspore=len([name for name in _names(layer) if name not in statistics]),
        claim=2,
        neighbour=(learned, len(layer.trainable_params())),
    )


@difference(
    "momentum-none",
    "`momentum=None`, PyTorch's plain average over all batches, is refused.",
    torch="nn.BatchNorm2d(3, momentum=None)",
    mindspore="nn.BatchNorm2d(3, momentum=None)",
    expected="raises",
    remedy="nn.BatchNorm2d(3, momentum=0.9)",
)
def momentum_none() -> Observation:
    x = _image(4, 3, 3, 3)
    return Observation(
        torch=_torch_running(x, momentum=None),
        mindspore=attempt(nn.BatchNorm2d, 3, momentum=None),
        claim=Raised("TypeError", "'<' not supported between instances of 'NoneType' and 'int'"),
        neighbour=(_torch_running(x), _ms_running(x)),
    )


@difference(
    "one-value-per-channel",
    "Training on one value per channel is accepted and makes the running variance NaN; PyTorch "
    "refuses it.",
    torch="nn.BatchNorm2d(3)(x)",
    mindspore="nn.BatchNorm2d(3).set_train()(x)",
    expected="accepts",
    remedy="dataset.batch(size, drop_remainder=True)",
)
def one_value_per_channel() -> Observation:
    def variances(x: Array) -> tuple[Any, Any]:
        theirs, ours = torch.nn.BatchNorm2d(3), nn.BatchNorm2d(3).set_train()
        raised = attempt(theirs, torch.tensor(x))
        ours(ms.Tensor(x)).asnumpy()
        seen = raised if isinstance(raised, Raised) else theirs.running_var
        return seen, ours.moving_variance.value()

    refused, mindspore = variances(_image(1, 3, 1, 1))
    return Observation(
        torch=refused,
        mindspore=mindspore,
        claim=np.full(3, np.nan, np.float32),
        neighbour=variances(_image(1, 3, 1, 2)),
    )


@difference(
    "functional-without-weight",
    "`ops.batch_norm` needs weight and bias.",
    torch="F.batch_norm(x, mean, variance)",
    mindspore="ops.batch_norm(x, mean, variance, None, None)",
    expected="raises",
    remedy="ops.batch_norm(x, mean, variance, ops.ones(3), ops.zeros(3))",
)
def functional_without_weight() -> Observation:
    x, zero, one = _image(4, 3, 3, 3), np.zeros(3, np.float32), np.ones(3, np.float32)
    right = F.batch_norm(torch.tensor(x), torch.zeros(3), torch.ones(3))

    def normalised(weight: Any, bias: Any) -> Any:
        return attempt(ops.batch_norm, ms.Tensor(x), ms.Tensor(zero), ms.Tensor(one), weight, bias)

    return Observation(
        torch=right,
        mindspore=normalised(None, None),
        claim=Raised("TypeError", 'Failed calling BatchNorm with "BatchNorm('),
        neighbour=(right, normalised(ms.Tensor(one), ms.Tensor(zero))),
    )


@difference(
    "layer-norm-epsilon",
    "The epsilon of `nn.LayerNorm` is 1e-7, PyTorch's 1e-5: activations that spread by 1e-3 come "
    "out three times as large.",
    torch="nn.LayerNorm(5)",
    mindspore="nn.LayerNorm((5,))",
    expected="differs",
    remedy="nn.LayerNorm((5,), epsilon=1e-5)",
)
def layer_norm_epsilon() -> Observation:
    x = _image(2, 5) * np.float32(1e-3)
    normalised, mindspore = _both(torch.nn.LayerNorm(5), nn.LayerNorm((5,)), x)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    claim = centred / np.sqrt(wide.var(axis=-1, keepdims=True) + 1e-7)
    return Observation(
        torch=normalised,
        mindspore=mindspore,
        claim=claim.astype(np.float32),
        neighbour=_both(torch.nn.LayerNorm(5), nn.LayerNorm((5,), epsilon=1e-5), x),
    )


@difference(
    "layer-norm-shape",
    "`nn.LayerNorm` takes the shape as a tuple or list, not as a number.",
    torch="nn.LayerNorm(5)",
    mindspore="nn.LayerNorm(5)",
    expected="raises",
    remedy="nn.LayerNorm((5,), epsilon=1e-5)",
)
def layer_norm_shape() -> Observation:
    x = _image(2, 5)
    return Observation(
        torch=torch.nn.LayerNorm(5)(torch.tensor(x)),
        mindspore=attempt(nn.LayerNorm, 5),
        claim=Raised("TypeError", "the type of 'normalized_shape' must be tuple[int] or list[int]"),
        neighbour=_both(torch.nn.LayerNorm(5), nn.LayerNorm((5,), epsilon=1e-5), x),
    )


@difference(
    "layer-norm-axes",
    "`nn.LayerNorm` normalises the last axis, however many the shape has, unless told where to "
    "begin; two axes without that raise.",
    torch="nn.LayerNorm((3, 4))",
    mindspore="nn.LayerNorm((3, 4))",
    expected="raises",
    remedy="nn.LayerNorm((3, 4), begin_norm_axis=1, begin_params_axis=1, epsilon=1e-5)",
)
def layer_norm_axes() -> Observation:
    x = _image(2, 3, 4)
    layer = torch.nn.LayerNorm((3, 4))
    normalised, mindspore = _both(layer, nn.LayerNorm((3, 4)), x)
    told = nn.LayerNorm((3, 4), begin_norm_axis=1, begin_params_axis=1, epsilon=1e-5)
    return Observation(
        torch=normalised,
        mindspore=mindspore,
        claim=Raised("ValueError", "gamma or beta shape must match input shape"),
        neighbour=_both(layer, told, x),
    )


@difference(
    "layer-norm-half-told",
    "`begin_params_axis` alone lets two axes pass, and still normalises the last one only.",
    torch="nn.LayerNorm((3, 4))",
    mindspore="nn.LayerNorm((3, 4), begin_params_axis=1, epsilon=1e-5)",
    expected="differs",
    remedy="nn.LayerNorm((3, 4), begin_norm_axis=1, begin_params_axis=1, epsilon=1e-5)",
)
def layer_norm_half_told() -> Observation:
    x = _image(2, 3, 4)
    layer = torch.nn.LayerNorm((3, 4))
    normalised, mindspore = _both(layer, nn.LayerNorm((3, 4), -1, 1, epsilon=1e-5), x)
    return Observation(
        torch=normalised,
        mindspore=mindspore,
        claim=F.layer_norm(torch.tensor(x), (4,)),
        neighbour=_both(layer, nn.LayerNorm((3, 4), 1, 1, epsilon=1e-5), x),
    )


@difference(
    "layer-norm-keywords",
    "`nn.LayerNorm` calls it `epsilon`; `eps`, `elementwise_affine` and `bias` are refused.",
    torch="nn.LayerNorm(5, eps=1e-6)",
    mindspore="nn.LayerNorm((5,), eps=1e-6)",
    expected="raises",
    remedy="nn.LayerNorm((5,), epsilon=1e-6)",
)
def layer_norm_keywords() -> Observation:
    x = _image(2, 5)
    layer = torch.nn.LayerNorm(5, eps=1e-6)
    return Observation(
        torch=layer(torch.tensor(x)),
        mindspore=attempt(nn.LayerNorm, (5,), eps=1e-6),
        claim=Raised("TypeError", "unexpected keyword argument 'eps'"),
        neighbour=_both(layer, nn.LayerNorm((5,), epsilon=1e-6), x),
    )


@difference(
    "functional-layer-norm",
    "`ops.layer_norm` has no kernel on CPU; the layer has one.",
    torch="F.layer_norm(x, (4,))",
    mindspore="ops.layer_norm(x, (4,))",
    expected="raises",
    remedy="nn.LayerNorm((4,), epsilon=1e-5)(x)",
)
def functional_layer_norm() -> Observation:
    x = _image(2, 3, 4)
    normalised, mindspore = _both(
        lambda x: F.layer_norm(x, (4,)), lambda x: ops.layer_norm(x, (4,)), x
    )
    return Observation(
        torch=normalised,
        mindspore=mindspore,
        claim=Raised("RuntimeError", "Create kernelmod for op LayerNormExt failed"),
        neighbour=_both(lambda x: F.layer_norm(x, (4,)), nn.LayerNorm((4,), epsilon=1e-5), x),
    )


@difference(
    "layer-norm-float64",
    "`nn.LayerNorm` of float64 computes in float32: the result is a float64 with an error of 1e-8.",
    torch="nn.LayerNorm(4).double()",
    mindspore="nn.LayerNorm((4,), epsilon=1e-5)",
    expected="off",
    remedy="(x - x.mean(-1, keep_dims=True)) / ops.sqrt(x.var(-1, keepdims=True) + 1e-5)",
)
def layer_norm_float64() -> Observation:
    x = _image(2, 3, 4).astype(np.float64)
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    right = (x - mean) / np.sqrt(variance + 1e-5)
    theirs = torch.nn.LayerNorm(4).double()(torch.tensor(x)).detach().numpy()
    ours = nn.LayerNorm((4,), epsilon=1e-5)(ms.Tensor(x)).asnumpy()
    tensor = ms.Tensor(x)
    by_hand = (tensor - tensor.mean(-1, keep_dims=True)) / ops.sqrt(
        tensor.var(-1, keepdims=True) + 1e-5
    )

    def inexact(result: Array) -> bool:
        return bool(np.abs(result - right).max() > 1e-12)

    return Observation(
        torch=inexact(theirs),
        mindspore=inexact(ours),
        claim=True,
        right=False,
        neighbour=(inexact(theirs), inexact(by_hand.asnumpy())),
    )


@difference(
    "instance-norm",
    "`nn.InstanceNorm2d` has no kernel on CPU.",
    torch="nn.InstanceNorm2d(4)",
    mindspore="nn.InstanceNorm2d(4)",
    expected="raises",
    remedy="nn.GroupNorm(4, 4)",
)
def instance_norm() -> Observation:
    x = _image(2, 4, 3, 3)
    normalised, mindspore = _both(torch.nn.InstanceNorm2d(4), nn.InstanceNorm2d(4), x)
    return Observation(
        torch=normalised,
        mindspore=mindspore,
        claim=Raised("RuntimeError", "Kernel select failed"),
        neighbour=_both(torch.nn.InstanceNorm2d(4), nn.GroupNorm(4, 4), x),
    )


@difference(
    "instance-norm-affine",
    "`nn.InstanceNorm2d` learns gamma and beta by default, PyTorch's learns nothing.",
    torch="nn.InstanceNorm2d(4).parameters()",
    mindspore="nn.InstanceNorm2d(4).trainable_params()",
    expected="differs",
    remedy="nn.InstanceNorm2d(4, affine=False)",
)
def instance_norm_affine() -> Observation:
    learned = len(list(torch.nn.InstanceNorm2d(4).parameters()))
    return Observation(
        torch=learned,
        mindspore=len(nn.InstanceNorm2d(4).trainable_params()),
        claim=2,
        neighbour=(learned, len(nn.InstanceNorm2d(4, affine=False).trainable_params())),
    )


@difference(
    "l2-normalize-axis",
    "`ops.L2Normalize()` works along axis 0, `F.normalize` along axis 1.",
    torch="F.normalize(x)",
    mindspore="ops.L2Normalize()(x)",
    expected="differs",
    remedy="ops.L2Normalize(axis=1)(x)",
)
def l2_normalize_axis() -> Observation:
    x = _image(2, 3)
    normalised, mindspore = _both(F.normalize, ops.L2Normalize(), x)
    wide = x.astype(np.float64)
    return Observation(
        torch=normalised,
        mindspore=mindspore,
        claim=(wide / np.sqrt((wide**2).sum(axis=0))).astype(np.float32),
        neighbour=_both(F.normalize, ops.L2Normalize(axis=1), x),
    )


@difference(
    "norm-gradient-at-0",
    "The gradient of `ops.norm` at a vector of zeros is NaN, PyTorch's is 0.",
    torch="x.norm().backward()",
    mindspore="ms.grad(ops.norm)(x)",
    expected="differs",
    remedy="ops.sqrt((x * x).sum() + 1e-24)",
)
def norm_gradient_at_0() -> Observation:
    zeros = np.zeros(3, np.float32)
    leaf = torch.tensor(zeros, requires_grad=True)
    torch.linalg.vector_norm(leaf).backward()
    return Observation(
        torch=leaf.grad,
        mindspore=ms.grad(ops.norm)(ms.Tensor(zeros)),
        claim=np.full(3, np.nan, np.float32),  # x / |x|
        neighbour=(
            leaf.grad,
            ms.grad(lambda x: ops.sqrt((x * x).sum() + 1e-24))(ms.Tensor(zeros)),
        ),
    )


@difference(
    "local-response",
    "`nn.LRN` counts its size to one side, does not divide alpha by the window, and has other "
    "defaults than PyTorch's.",
    torch="nn.LocalResponseNorm(5)",
    mindspore="nn.LRN(5)",
    expected="differs",
    remedy="nn.LRN(2, bias=1.0, alpha=1e-4 / 5, beta=0.75)",
)
def local_response() -> Observation:
    x = _image(2, 8, 3, 3)
    normalised, mindspore = _both(torch.nn.LocalResponseNorm(5), nn.LRN(5), x)
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (5, 5), (0, 0), (0, 0)))
    window = sum(squares[:, k : k + 8] for k in range(11))
    return Observation(
        torch=normalised,
        mindspore=mindspore,
        claim=(x / np.sqrt(1 + window)).astype(np.float32),
        neighbour=_both(
            torch.nn.LocalResponseNorm(5), nn.LRN(2, bias=1.0, alpha=1e-4 / 5, beta=0.75), x
        ),
    )

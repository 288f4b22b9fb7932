"""Gradients: what is returned, for what, and the convention where a function has a corner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import nn, ops

from msnb.differences import Observation, Raised, attempt, difference

Array = np.ndarray[Any, Any]


def in_torch(function: Callable[[Any], Any], x: Any) -> Array:
    """The gradient of the sum of ``function(x)``."""
    tensor = torch.tensor(np.asarray(x, np.float32), requires_grad=True)
    function(tensor).sum().backward()
    assert tensor.grad is not None
    return np.asarray(tensor.grad.numpy())


def in_mindspore(function: Callable[[Any], Any], x: Any) -> Array:
    """The gradient of the sum of ``function(x)``."""

    def total(x: Any) -> Any:
        return function(x).sum()

    return np.asarray(ms.grad(total)(ms.Tensor(np.asarray(x, np.float32))).asnumpy())


def parameter(values: Any, name: str = "weight") -> Any:
    return ms.Parameter(ms.Tensor(np.asarray(values, np.float32)), name=name)


X = np.array([3.0, 4.0], np.float32)


@difference(
    "other-outputs-are-added",
    "`value_and_grad` without `has_aux=True` differentiates the sum of ALL outputs: returning the "
    "logits beside the loss changes the gradient.",
    torch="loss, logits = forward(x); loss.backward()",
    mindspore="ms.value_and_grad(forward, None, weights)  # forward returns loss, logits",
    expected="differs",
    remedy="ms.value_and_grad(forward, None, weights, has_aux=True)",
)
def other_outputs_are_added() -> Observation:
    weight, theirs = parameter([1.0, 2.0]), torch.tensor([1.0, 2.0], requires_grad=True)

    def forward(x: Any) -> Any:
        logits = weight * x
        return logits.sum(), logits * 10

    (theirs * torch.tensor(X)).sum().backward()
    x = ms.Tensor(X)
    return Observation(
        torch=theirs.grad,
        mindspore=ms.value_and_grad(forward, None, [weight])(x)[1][0],
        claim=11 * X,
        neighbour=(
            theirs.grad,
            ms.value_and_grad(forward, None, [weight], has_aux=True)(x)[1][0],
        ),
    )


@difference(
    "first-argument-only",
    "`ms.grad(f)` is the gradient for the first argument alone.",
    torch="torch.autograd.grad(f(x, y), (x, y))",
    mindspore="ms.grad(f)(x, y)",
    expected="differs",
    remedy="ms.grad(f, grad_position=(0, 1))(x, y)",
)
def first_argument_only() -> Observation:
    def product(x: Any, y: Any) -> Any:
        return (x * y).sum()

    x, y = (torch.tensor(X * k, requires_grad=True) for k in (1, 2))
    reference = torch.autograd.grad(product(x, y), (x, y))
    ours = ms.Tensor(X), ms.Tensor(X * 2)
    return Observation(
        torch=reference,
        mindspore=(ms.grad(product)(*ours),),
        claim=(X * 2,),
        neighbour=(reference, ms.grad(product, (0, 1))(*ours)),
    )


@difference(
    "unused-is-zero",
    "A weight that the loss does not use has the gradient zero, in PyTorch None: a weight "
    "forgotten by mistake goes unnoticed.",
    torch="unused.grad",
    mindspore="ms.grad(loss, None, [used, unused])(x)[1]",
    expected="differs",
    remedy="assert all(float(ops.abs(g).sum()) > 0 for g in grads)",
)
def unused_is_zero() -> Observation:
    used, unused = parameter([1.0, 2.0], "used"), parameter([1.0, 2.0], "unused")
    theirs = torch.tensor([1.0, 2.0], requires_grad=True)
    forgotten = torch.tensor([1.0, 2.0], requires_grad=True)
    (theirs * torch.tensor(X)).sum().backward()

    def loss(x: Any) -> Any:
        return (used * x).sum()

    grads = ms.grad(loss, None, [used, unused])(ms.Tensor(X))
    return Observation(
        torch=forgotten.grad,
        mindspore=grads[1],
        claim=np.zeros(2, np.float32),
        neighbour=(theirs.grad, grads[0]),
    )


@difference(
    "weights-of-another-net",
    "Gradients for the weights of a net that the loss does not contain are zeros; PyTorch raises.",
    torch="torch.autograd.grad(loss, other.parameters())",
    mindspore="ms.grad(loss, None, other.trainable_params())(x)",
    expected="accepts",
    remedy="ms.grad(loss, None, net.trainable_params())(x)",
)
def weights_of_another_net() -> Observation:
    net, other = (nn.Dense(2, 1, weight_init="ones", has_bias=False) for _ in range(2))

    def loss(x: Any) -> Any:
        return net(x).sum()

    used, unused = (torch.ones((1, 2), requires_grad=True) for _ in range(2))
    x = torch.tensor(X[None])
    ours = ms.Tensor(X[None])
    return Observation(
        torch=attempt(lambda: torch.autograd.grad(F.linear(x, used).sum(), unused)),
        mindspore=ms.grad(loss, None, other.trainable_params())(ours),
        claim=(np.zeros((1, 2), np.float32),),
        neighbour=(
            torch.autograd.grad(F.linear(x, used).sum(), used),
            ms.grad(loss, None, net.trainable_params())(ours),
        ),
    )


@difference(
    "asnumpy-cuts",
    "A detour through `asnumpy()` cuts the gradient to zero without a word; PyTorch refuses "
    "`numpy()` on a tensor that requires a gradient.",
    torch="torch.tensor((x * x).numpy()).sum().backward()",
    mindspore="ms.grad(lambda x: ms.Tensor((x * x).asnumpy()).sum())(x)",
    expected="accepts",
    remedy="ops.square(x).sum()",
)
def asnumpy_cuts() -> Observation:
    return Observation(
        torch=attempt(in_torch, lambda x: torch.tensor((x * x).numpy()), X),
        mindspore=in_mindspore(lambda x: ms.Tensor((x * x).asnumpy()), X),
        claim=np.zeros(2, np.float32),
        neighbour=(in_torch(lambda x: x * x, X), in_mindspore(lambda x: ops.square(x), X)),
    )


@difference(
    "stop-gradient",
    "`ops.stop_gradient` is PyTorch's `detach()` (a Tensor has no `detach`).",
    torch="(x.detach() * x).sum()",
    mindspore="(ops.stop_gradient(x) * x).sum()",
    expected="agrees",
)
def stop_gradient() -> Observation:
    reference = in_torch(lambda x: x.detach() * x, X)
    return Observation(
        torch=reference,
        mindspore=in_mindspore(lambda x: ops.stop_gradient(x) * x, X),
        neighbour=(reference, in_mindspore(lambda x: x * x, X)),
    )


@difference(
    "no-backward",
    "A Tensor has no `backward()`: gradients come from a function that is differentiated.",
    torch="(x * x).sum().backward()",
    mindspore="(x * x).sum().backward()",
    expected="raises",
    remedy="ms.grad(f)(x)",
)
def no_backward() -> Observation:
    reference = in_torch(lambda x: x * x, X)
    return Observation(
        torch=reference,
        mindspore=attempt(lambda: (ms.Tensor(X) * ms.Tensor(X)).sum().backward()),
        claim=Raised("AttributeError", "'Tensor' object has no attribute 'backward'"),
        neighbour=(reference, in_mindspore(lambda x: x * x, X)),
    )


@difference(
    "vector-output",
    "The gradient of an output that is no scalar is the gradient of its sum; PyTorch raises.",
    torch="(x * x).backward()",
    mindspore="ms.grad(lambda x: x * x)(x)",
    expected="accepts",
    remedy="ms.grad(lambda x: (x * x).mean())(x)",
)
def vector_output() -> Observation:
    def square(x: Any) -> Any:
        return x * x

    def mean(x: Any) -> Any:
        return (x * x).mean()

    x = torch.tensor(X, requires_grad=True)
    return Observation(
        torch=attempt(lambda: square(x).backward()),
        mindspore=ms.grad(square)(ms.Tensor(X)),
        claim=2 * X,
        neighbour=(in_torch(mean, X), ms.grad(mean)(ms.Tensor(X))),
    )


@difference(
    "integer-input",
    "Integers can be differentiated: the gradient is an integer too. PyTorch raises.",
    torch="torch.tensor([1, 2], requires_grad=True)",
    mindspore="ms.grad(lambda x: (x * x).sum())(ms.Tensor([1, 2]))",
    expected="accepts",
    remedy="ms.Tensor([1, 2], ms.float32)",
)
def integer_input() -> Observation:
    def square(x: Any) -> Any:
        return (x * x).sum()

    return Observation(
        torch=attempt(torch.tensor, [1, 2], requires_grad=True),
        mindspore=ms.grad(square)(ms.Tensor([1, 2])),
        claim=np.array([2, 4], np.int64),
        neighbour=(in_torch(square, [1.0, 2.0]), in_mindspore(square, [1.0, 2.0])),
    )


@difference(
    "frozen-is-zero",
    "A parameter with `requires_grad = False` that is asked for all the same has the gradient "
    "zero; PyTorch raises.",
    torch="weight.requires_grad = False; torch.autograd.grad(loss, weight)",
    mindspore="weight.requires_grad = False; ms.grad(loss, None, [weight])(x)",
    expected="accepts",
    remedy="ms.grad(loss, None, net.trainable_params())",
)
def frozen_is_zero() -> Observation:
    free, frozen = parameter([1.0, 2.0], "free"), parameter([1.0, 2.0], "frozen")
    frozen.requires_grad = False

    def loss(x: Any) -> Any:
        return (free * frozen * x).sum()

    theirs_free = torch.tensor([1.0, 2.0], requires_grad=True)
    theirs_frozen = torch.tensor([1.0, 2.0])
    total = (theirs_free * theirs_frozen * torch.tensor(X)).sum()
    return Observation(
        torch=attempt(torch.autograd.grad, total, theirs_frozen),
        mindspore=ms.grad(loss, None, [frozen])(ms.Tensor(X)),
        claim=(np.zeros(2, np.float32),),
        neighbour=(
            torch.autograd.grad(total, theirs_free),
            ms.grad(loss, None, [free])(ms.Tensor(X)),
        ),
    )


@difference(
    "sens-is-the-vector",
    "`GradOperation(sens_param=True)` takes the vector as its last argument, as PyTorch's "
    "`backward(vector)`.",
    torch="(x * x).backward(v)",
    mindspore="ops.GradOperation(sens_param=True)(f)(x, v)",
    expected="agrees",
)
def sens_is_the_vector() -> Observation:
    def square(x: Any) -> Any:
        return x * x

    x = torch.tensor(X, requires_grad=True)
    square(x).backward(torch.tensor([10.0, 1.0]))
    return Observation(
        torch=x.grad,
        mindspore=ops.GradOperation(sens_param=True)(square)(
            ms.Tensor(X), ms.Tensor(np.array([10.0, 1.0], np.float32))
        ),
        neighbour=(x.grad, ops.GradOperation()(square)(ms.Tensor(X))),
    )


@difference(
    "maximum-ties",
    "Where several elements are the largest, `max` shares the gradient among them, as PyTorch.",
    torch="x.max()",
    mindspore="x.max()",
    expected="agrees",
)
def maximum_ties() -> Observation:
    ties = [1.0, 3.0, 3.0]
    return Observation(
        torch=in_torch(lambda x: x.max(), ties),
        mindspore=in_mindspore(lambda x: x.max(), ties),
        neighbour=(  # along an axis the first one takes it
            in_torch(lambda x: x.max(), ties),
            in_mindspore(lambda x: ops.max(x, 0)[0], ties),
        ),
    )


@difference(
    "median-ties",
    "Where several elements are the median, `ops.median` gives the gradient to one of them, "
    "PyTorch shares it.",
    torch="x.median()",
    mindspore="ops.median(x)[0]",
    expected="differs",
)
def median_ties() -> Observation:
    def median(x: Any) -> Any:
        return ops.median(x)[0]

    return Observation(
        torch=in_torch(lambda x: x.median(), [1.0, 3.0, 3.0]),
        mindspore=in_mindspore(median, [1.0, 3.0, 3.0]),
        claim=np.array([0.0, 1.0, 0.0], np.float32),
        neighbour=(
            in_torch(lambda x: x.median(), [1.0, 2.0, 3.0]),
            in_mindspore(median, [1.0, 2.0, 3.0]),
        ),
    )


@difference(
    "clip-at-the-limit",
    "At the limit itself `ops.clip_by_value` has the gradient 1/2, PyTorch's clamp 1.",
    torch="torch.clamp(x, -1, 1)",
    mindspore="ops.clip_by_value(x, -1, 1)",
    expected="differs",
    remedy="ops.clamp(x, -1, 1)",
)
def clip_at_the_limit() -> Observation:
    x = [-1.0, 1.0, 0.0, 2.0]
    reference = in_torch(lambda x: x.clamp(-1, 1), x)
    return Observation(
        torch=reference,
        mindspore=in_mindspore(lambda x: ops.clip_by_value(x, -1, 1), x),
        claim=np.array([0.5, 0.5, 1.0, 0.0], np.float32),
        neighbour=(reference, in_mindspore(lambda x: ops.clamp(x, -1, 1), x)),
    )


@difference(
    "corners-of-activations",
    "At their corners activations take another of the possible gradients: leaky_relu the mean of "
    "both sides, hardtanh 1/2, relu6 at 6 the gradient 1.",
    torch="F.leaky_relu(0), F.hardtanh(-1), F.relu6(6)",
    mindspore="ops.leaky_relu(0), ops.hardtanh(-1), ops.relu6(6)",
    expected="differs",
    remedy="ops.select(x > 0, x, 0.1 * x)",
)
def corners_of_activations() -> Observation:
    def both(leaky: float, hard: float, six: float) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        return (
            (
                in_torch(lambda x: F.leaky_relu(x, 0.1), [leaky]),
                in_torch(F.hardtanh, [hard]),
                in_torch(F.relu6, [six]),
            ),
            (
                in_mindspore(lambda x: ops.leaky_relu(x, 0.1), [leaky]),
                in_mindspore(ops.hardtanh, [hard]),
                in_mindspore(ops.relu6, [six]),
            ),
        )

    theirs, ours = both(0.0, -1.0, 6.0)
    return Observation(
        torch=theirs,
        mindspore=ours,
        claim=tuple(np.array([value], np.float32) for value in (0.55, 0.5, 1.0)),
        neighbour=both(-0.25, -0.75, 5.5),
    )


@difference(
    "hardswish-at-its-corners",
    "`ops.hardswish` has at -3 and 3 the slope of the parabola, -1/2 and 3/2, PyTorch that of the "
    "straight line, 0 and 1.",
    torch="F.hardswish(x)",
    mindspore="ops.hardswish(x)",
    expected="differs",
    remedy="ops.where(x <= -3, 0.0 * x, ops.where(x >= 3, x, x * (x + 3) / 6))",
)
def hardswish_at_its_corners() -> Observation:
    return Observation(
        torch=in_torch(F.hardswish, [-3.0, 3.0]),
        mindspore=in_mindspore(ops.hardswish, [-3.0, 3.0]),
        claim=np.array([-0.5, 1.5], np.float32),
        neighbour=(
            in_torch(F.hardswish, [-3.5, -2.5, 2.5, 3.5]),
            in_mindspore(ops.hardswish, [-3.5, -2.5, 2.5, 3.5]),
        ),
    )


@difference(
    "selu-below-zero",
    "The gradient of `ops.selu` is wrong for x <= 0: at -1 it is -0.117, right is 0.647.",
    torch="F.selu(x)",
    mindspore="ops.selu(x)",
    expected="off",
    remedy="1.0507009873554805 * ops.where(x > 0, x, 1.6732632423543772 * ops.expm1(x))",
)
def selu_below_zero() -> Observation:
    x = np.array([-2.0, -1.0, -0.5, 1.0])
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    selu = np.where(x > 0, scale * x, scale * alpha * np.expm1(x))
    return Observation(
        torch=in_torch(F.selu, x),
        mindspore=in_mindspore(ops.selu, x),
        claim=np.where(x > 0, scale, scale * (1 + selu)).astype(np.float32),
        right=np.where(x > 0, scale, scale * alpha * np.exp(x)).astype(np.float32),
        neighbour=(in_torch(F.elu, x), in_mindspore(ops.elu, x)),
    )


@difference(
    "norm-at-zero",
    "The gradient of a norm at zero is NaN, in PyTorch 0: a layer that starts at zero poisons the "
    "net.",
    torch="x.norm()",
    mindspore="ops.norm(x)",
    expected="differs",
    remedy="ops.sqrt((x * x).sum() + 1e-12)",
)
def norm_at_zero() -> Observation:
    def norm(x: Any) -> Any:
        return x.norm()

    return Observation(
        torch=in_torch(norm, [0.0, 0.0]),
        mindspore=in_mindspore(ops.norm, [0.0, 0.0]),
        claim=np.full(2, np.nan, np.float32),
        neighbour=(in_torch(norm, X), in_mindspore(ops.norm, X)),
    )


@difference(
    "std-of-equal-values",
    "The gradient of a standard deviation of equal values is NaN, in PyTorch 0.",
    torch="x.std()",
    mindspore="ops.std(x, 0, 1)",
    expected="differs",
    remedy="ops.sqrt(((x - x.mean()) ** 2).sum() / (x.size - 1) + 1e-12)",
)
def std_of_equal_values() -> Observation:
    def std(x: Any) -> Any:
        return ops.std(x, 0, 1)

    return Observation(
        torch=in_torch(lambda x: x.std(), [1.0, 1.0, 1.0]),
        mindspore=in_mindspore(std, [1.0, 1.0, 1.0]),
        claim=np.full(3, np.nan, np.float32),
        neighbour=(
            in_torch(lambda x: x.std(), [1.0, 2.0, 4.0]),
            in_mindspore(std, [1.0, 2.0, 4.0]),
        ),
    )


@difference(
    "cumprod-with-a-zero",
    "The gradient of `ops.cumprod` is NaN at an element that is zero, where it is finite.",
    torch="x.cumprod(0)",
    mindspore="ops.cumprod(x, 0)",
    expected="off",
    remedy="ops.stack([x[: i + 1].prod() for i in range(x.shape[0])])",
)
def cumprod_with_a_zero() -> Observation:
    def ours(x: Any) -> Any:
        return ops.cumprod(x, 0)

    def theirs(x: Any) -> Any:
        return x.cumprod(0)

    return Observation(
        torch=in_torch(theirs, [0.0, 2.0, 3.0]),
        mindspore=in_mindspore(ours, [0.0, 2.0, 3.0]),
        claim=np.array([np.nan, 0.0, 0.0], np.float32),
        right=np.array([9.0, 0.0, 0.0], np.float32),  # 1 + 2 + 2 * 3
        neighbour=(in_torch(theirs, [1.0, 2.0, 3.0]), in_mindspore(ours, [1.0, 2.0, 3.0])),
    )


@difference(
    "atan2-at-the-origin",
    "The gradient of `ops.atan2` at the origin is NaN, in PyTorch 0.",
    torch="torch.atan2(x, x)",
    mindspore="ops.atan2(x, x)",
    expected="differs",
    remedy="ops.where(zero, 0 * y, ops.atan2(y, ops.where(zero, 1, x)))  # zero: both are 0",
)
def atan2_at_the_origin() -> Observation:
    def theirs(x: Any) -> Any:
        return torch.atan2(x, 2 * x)

    def ours(x: Any) -> Any:
        return ops.atan2(x, 2 * x)

    return Observation(
        torch=in_torch(theirs, [0.0]),
        mindspore=in_mindspore(ours, [0.0]),
        claim=np.full(1, np.nan, np.float32),
        neighbour=(in_torch(theirs, [1.0]), in_mindspore(ours, [1.0])),
    )


@difference(
    "corners-that-agree",
    "At 0 abs, relu and the square root have PyTorch's gradients: 0, 0 and infinity.",
    torch="x.abs(), F.relu(x), x.sqrt()",
    mindspore="ops.abs(x), ops.relu(x), ops.sqrt(x)",
    expected="agrees",
)
def corners_that_agree() -> Observation:
    theirs: tuple[Any, ...] = (torch.abs, F.relu, torch.sqrt)
    ours = (ops.abs, ops.relu, ops.sqrt)
    reference = tuple(in_torch(function, [0.0, 4.0]) for function in theirs)
    return Observation(
        torch=reference,
        mindspore=tuple(in_mindspore(function, [0.0, 4.0]) for function in ours),
        neighbour=(
            reference,
            tuple(in_mindspore(function, [0.0, 4.0]) for function in (ops.abs, ops.elu, ops.sqrt)),
        ),
    )


@difference(
    "order-of-weights",
    "Gradients come in the order of the weights given, not under their names.",
    torch="{name: p.grad for name, p in net.named_parameters()}",
    mindspore="ms.grad(loss, None, [b, a])(x)",
    expected="differs",
    remedy="{p.name: g for p, g in zip(weights, grads)}",
)
def order_of_weights() -> Observation:
    a, b = parameter([1.0, 2.0], "a"), parameter([5.0, 6.0], "b")
    theirs = [torch.tensor(v, requires_grad=True) for v in ([1.0, 2.0], [5.0, 6.0])]
    (theirs[0] * theirs[1] * torch.tensor(X)).sum().backward()
    reference = tuple(weight.grad for weight in theirs)

    def loss(x: Any) -> Any:
        return (a * b * x).sum()

    grads = ms.grad(loss, None, [b, a])(ms.Tensor(X))
    by_name = dict(zip(("b", "a"), grads, strict=True))
    return Observation(
        torch=reference,
        mindspore=grads,
        claim=(np.array([3.0, 8.0], np.float32), np.array([15.0, 24.0], np.float32)),
        neighbour=(reference, (by_name["a"], by_name["b"])),
    )

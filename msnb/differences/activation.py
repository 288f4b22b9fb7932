"""Activations and elementwise functions: defaults, accuracy, gradients at kinks, NaN."""

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
Function = Callable[[Any], Any]


def _values(*values: float) -> Array:
    return np.array(values, dtype=np.float32)


def _both(torch_fn: Function, ms_fn: Function, x: Array) -> tuple[Any, Any]:
    return torch_fn(torch.tensor(x)), attempt(ms_fn, ms.Tensor(x))


def _gradients(torch_fn: Function, ms_fn: Function, x: Array) -> tuple[Any, Any]:
    """The gradient of the sum of the output with respect to x, in each framework."""
    leaf = torch.tensor(x, requires_grad=True)
    torch_fn(leaf).sum().backward()
    return leaf.grad, ms.grad(lambda value: ms_fn(value).sum())(ms.Tensor(x))


def _exact(function: Function, x: Array) -> torch.Tensor:
    result: torch.Tensor = function(torch.tensor(x, dtype=torch.float64))
    return result


def _inexact(function: Function, ms_fn: Function, x: Array, above: float) -> tuple[bool, bool]:
    """Whether the relative error against float64 exceeds a limit, in torch and in MindSpore."""
    right = _exact(function, x).numpy()
    outputs = (function(torch.tensor(x)).numpy(), ms_fn(ms.Tensor(x)).asnumpy())
    torch_off, ms_off = (bool(np.max(np.abs(out / right - 1)) > above) for out in outputs)
    return torch_off, ms_off


def tanh_by_fraction(x: Array) -> Array:
    """tanh as MindSpore's CPU kernel has it: a continued fraction, cut to +-1 beyond |x| = 5.

    Lambert's continued fraction of tanh, stopped after seven terms; float64 in and out.

    >>> round(float(tanh_by_fraction(np.array([5.0]))[0]), 7)
    1.0000098
    """
    x = x.astype(np.float64)
    s = x * x
    above = (((s + 378) * s + 17325) * s + 135135) * x
    below = ((28 * s + 3150) * s + 62370) * s + 135135
    return np.where(np.abs(x) > 5, np.sign(x), above / below)


# Defaults and arguments


@difference(
    "gelu-default",
    "`nn.GELU()` is the tanh approximation; PyTorch's default, and `ops.gelu`, are the exact one.",
    torch="nn.GELU()",
    mindspore="nn.GELU()",
    expected="differs",
    remedy="nn.GELU(approximate=False)",
)
def gelu_default() -> Observation:
    x = np.linspace(-4, 4, 33, dtype=np.float32)
    exact, mindspore = _both(F.gelu, nn.GELU(), x)
    return Observation(
        torch=exact,
        mindspore=mindspore,
        claim=F.gelu(torch.tensor(x), approximate="tanh"),
        neighbour=_both(F.gelu, nn.GELU(approximate=False), x),
    )


@difference(
    "gelu-approximate-type",
    '`nn.GELU` takes a bool for `approximate`; PyTorch\'s `"none"` and `"tanh"` are refused.',
    torch='nn.GELU(approximate="none")',
    mindspore='nn.GELU(approximate="none")',
    expected="raises",
    remedy="nn.GELU(approximate=False)",
)
def gelu_approximate_type() -> Observation:
    x = _values(-1, 0.5, 2)
    return Observation(
        torch=torch.nn.GELU(approximate="none")(torch.tensor(x)),
        mindspore=attempt(nn.GELU, approximate="none"),
        claim=Raised("TypeError", "the 'approximate' must be a bool, but got str"),
        neighbour=_both(torch.nn.GELU(approximate="none"), nn.GELU(approximate=False), x),
    )


@difference(
    "leaky-relu-slope",
    "`nn.LeakyReLU()` and `ops.leaky_relu` have slope 0.2, PyTorch's have 0.01.",
    torch="nn.LeakyReLU()",
    mindspore="nn.LeakyReLU()",
    expected="differs",
    remedy="nn.LeakyReLU(alpha=0.01)",
)
def leaky_relu_slope() -> Observation:
    x = _values(-3, -1, 2)
    default, mindspore = _both(F.leaky_relu, nn.LeakyReLU(), x)
    return Observation(
        torch=default,
        mindspore=mindspore,
        claim=_values(-0.6, -0.2, 2),
        neighbour=_both(F.leaky_relu, nn.LeakyReLU(alpha=0.01), x),
    )


@difference(
    "elu-alpha",
    "`nn.ELU` and `ops.elu` take no `alpha` but 1.0.",
    torch="F.elu(x, alpha=0.5)",
    mindspore="ops.elu(x, alpha=0.5)",
    expected="raises",
    remedy="ops.where(x > 0, x, 0.5 * ops.celu(x))",
)
def elu_alpha() -> Observation:
    x = _values(-2, -1, 0.5, 3)
    elu, mindspore = _both(lambda x: F.elu(x, alpha=0.5), lambda x: ops.elu(x, alpha=0.5), x)
    return Observation(
        torch=elu,
        mindspore=mindspore,
        claim=Raised("ValueError", "alpha must be 1.0f"),
        neighbour=_both(
            lambda x: F.elu(x, alpha=0.5),
            lambda x: ops.where(x > 0, x, 0.5 * ops.celu(x)),
            _values(-2, 0, 3, 200),
        ),
    )


@difference(
    "prelu-weight-name",
    "The slope of `nn.PReLU` is the parameter `w`, in PyTorch it is `weight`.",
    torch="nn.PReLU().state_dict()",
    mindspore="nn.PReLU().parameters_and_names()",
    expected="differs",
    remedy='{"act.w": Parameter(state["act.weight"].numpy())}',
)
def prelu_weight_name() -> Observation:
    def names(cell: Any) -> tuple[str, ...]:
        return tuple(name for name, _ in cell.parameters_and_names())

    return Observation(
        torch=tuple(torch.nn.PReLU().state_dict()),
        mindspore=names(nn.PReLU()),
        claim=("w",),
        neighbour=(tuple(torch.nn.Linear(2, 3).state_dict()), names(nn.Dense(2, 3))),
    )


@difference(
    "prelu-arguments",
    "`nn.PReLU` calls them `channel` and `w`; `num_parameters` and `init` are refused.",
    torch="nn.PReLU(num_parameters=3, init=0.1)",
    mindspore="nn.PReLU(num_parameters=3, init=0.1)",
    expected="raises",
    remedy="nn.PReLU(channel=3, w=0.1)",
)
def prelu_arguments() -> Observation:
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    prelu = torch.nn.PReLU(num_parameters=3, init=0.1)
    return Observation(
        torch=prelu(torch.tensor(x)),
        mindspore=attempt(nn.PReLU, num_parameters=3, init=0.1),
        claim=Raised("TypeError", "unexpected keyword argument 'num_parameters'"),
        neighbour=_both(prelu, nn.PReLU(channel=3, w=0.1), x),
    )


@difference(
    "rrelu-evaluation",
    "`nn.RReLU` draws its slopes in evaluation mode, too; PyTorch then takes their mean.",
    torch="nn.RReLU().eval()",
    mindspore="nn.RReLU().set_train(False)",
    expected="differs",
    remedy="nn.LeakyReLU(alpha=(1 / 8 + 1 / 3) / 2)  # in evaluation",
)
def rrelu_evaluation() -> Observation:
    x = -np.ones(64, dtype=np.float32)

    def repeats(layer: Function, tensor: Any) -> bool:
        return np.array_equal(layer(tensor).numpy(), layer(tensor).numpy())

    mindspore = repeats(nn.RReLU().set_train(False), ms.Tensor(x))
    return Observation(
        torch=repeats(torch.nn.RReLU().eval(), torch.tensor(x)),
        mindspore=mindspore,
        claim=False,
        neighbour=(repeats(torch.nn.RReLU().train(), torch.tensor(x)), mindspore),
    )


@difference(
    "softmax-default-axis",
    "Without an axis MindSpore's softmax takes the last one; PyTorch takes axis 0 where the input "
    "has 0, 1 or 3 dimensions (and warns), else axis 1.",
    torch="nn.Softmax()",
    mindspore="nn.Softmax()",
    expected="differs",
    remedy="nn.Softmax(axis=0)",
)
def softmax_default_axis() -> Observation:
    from warnings import catch_warnings, simplefilter

    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    with catch_warnings():
        simplefilter("ignore")
        default, mindspore = _both(torch.nn.Softmax(), nn.Softmax(), x)
        neighbour = _both(torch.nn.Softmax(), nn.Softmax(), x[0])  # two dimensions: the last
    return Observation(
        torch=default,
        mindspore=mindspore,
        claim=F.softmax(torch.tensor(x), dim=-1),
        neighbour=neighbour,
    )


@difference(
    "softmax-dim-keyword",
    "`ops.softmax` calls it `axis` and refuses `dim`.",
    torch="F.softmax(x, dim=0)",
    mindspore="ops.softmax(x, dim=0)",
    expected="raises",
    remedy="ops.softmax(x, axis=0)",
)
def softmax_dim_keyword() -> Observation:
    x = _values(1, 2, 4)
    softmax, mindspore = _both(lambda x: F.softmax(x, dim=0), lambda x: ops.softmax(x, dim=0), x)
    return Observation(
        torch=softmax,
        mindspore=mindspore,
        claim=Raised("TypeError", "unexpected keyword argument 'dim'"),
        neighbour=_both(lambda x: F.softmax(x, dim=0), lambda x: ops.softmax(x, axis=0), x),
    )


# Accuracy


@difference(
    "tanh-near-5",
    "float32 `tanh` is a rational approximation on CPU: off by up to 1e-4, above 1 just below "
    "x = 5, and exactly 1 beyond.",
    torch="torch.tanh(x)",
    mindspore="ops.tanh(x)",
    expected="off",
    remedy="ops.tanh(x.astype(ms.float64)).astype(ms.float32)",
)
def tanh_near_5() -> Observation:
    x = _values(-5, 4, 4.5, 4.99, 5, 5.01, 6)
    tanh, mindspore = _both(torch.tanh, ops.tanh, x)
    return Observation(
        torch=tanh,
        mindspore=mindspore,
        claim=tanh_by_fraction(x).astype(np.float32),
        right=_exact(torch.tanh, x).float(),
        neighbour=_both(torch.tanh, ops.tanh, _values(-1, 0, 0.5, 1)),
    )


@difference(
    "tanh-gradient",
    "The gradient of float32 `tanh` is negative near x = 5 and exactly 0 beyond: a saturated unit "
    "learns in the wrong direction or not at all.",
    torch="torch.tanh(x).backward()",
    mindspore="ms.grad(ops.tanh)(x)",
    expected="off",
    remedy="ops.tanh(x.astype(ms.float64)).astype(ms.float32)",
)
def tanh_gradient() -> Observation:
    x = _values(4.99, 5, 5.5)
    gradient, mindspore = _gradients(torch.tanh, ops.tanh, x)
    return Observation(
        # in units of the true slope, rounded: 1 - tanh(x)**2 loses digits in float32, in both
        torch=np.round(gradient.numpy() * np.cosh(x) ** 2, 2),
        mindspore=np.round(mindspore.asnumpy() * np.cosh(x) ** 2, 2),
        claim=np.round((1 - tanh_by_fraction(x) ** 2) * np.cosh(x) ** 2, 2).astype(np.float32),
        right=np.ones(3, dtype=np.float32),
        neighbour=_gradients(torch.tanh, ops.tanh, _values(-1, 0, 0.5, 1)),
    )


@difference(
    "exp-large",
    "float32 `exp` is off by up to 2e-5, relative, far from 0; PyTorch's by 1e-7.",
    torch="torch.exp(x)",
    mindspore="ops.exp(x)",
    expected="off",
    remedy="ops.exp(x.astype(ms.float64)).astype(ms.float32)",
)
def exp_large() -> Observation:
    torch_off, ms_off = _inexact(torch.exp, ops.exp, _values(-80, 80, 88), 1e-5)
    return Observation(
        torch=torch_off,
        mindspore=ms_off,
        claim=True,
        right=False,
        neighbour=_inexact(torch.exp, ops.exp, _values(-0.5, 0.5, 1), 1e-5),
    )


@difference(
    "exp-small",
    "float32 `exp` gives 0 below about -87, where PyTorch still gives a normal number.",
    torch="torch.exp(x)",
    mindspore="ops.exp(x)",
    expected="off",
    remedy="ops.exp(x.astype(ms.float64))",
)
def exp_small() -> Observation:
    def is_zero(x: Array) -> tuple[bool, bool]:
        both = _both(torch.exp, ops.exp, x)
        return bool((both[0].numpy() == 0).all()), bool((both[1].asnumpy() == 0).all())

    torch_zero, ms_zero = is_zero(_values(-87.2))
    return Observation(
        torch=torch_zero,
        mindspore=ms_zero,
        claim=True,
        right=bool(np.exp(-87.2) < np.finfo(np.float32).tiny),  # exp(-87.2) is a normal float32
        neighbour=is_zero(_values(-86)),
    )


@difference(
    "log-near-1",
    "float32 `log` is off by up to 6e-5, relative, just below 1, but for the last elements of an "
    "array, which do not fill a vector of four; PyTorch's by 1e-7.",
    torch="torch.log(x)",
    mindspore="ops.log(x)",
    expected="off",
    remedy="ops.log(x.astype(ms.float64)).astype(ms.float32)",
)
def log_near_1() -> Observation:
    x = _values(0.9986, 0.999, 0.9986, 0.999)
    torch_off, ms_off = _inexact(torch.log, ops.log, x, 1e-5)
    return Observation(
        torch=torch_off,
        mindspore=ms_off,
        claim=True,
        right=False,
        neighbour=_inexact(torch.log, ops.log, x[:3], 1e-5),
    )


@difference(
    "log1p-small",
    "`ops.log1p` is log(1 + x) in float32: it loses the digits it exists for, 5 % at x = 1e-6.",
    torch="torch.log1p(x)",
    mindspore="ops.log1p(x)",
    expected="off",
    remedy="ops.log1p(x.astype(ms.float64)).astype(ms.float32)",
)
def log1p_small() -> Observation:
    x = _values(1e-6, 3e-6)
    log1p, mindspore = _both(torch.log1p, ops.log1p, x)
    one_plus = (np.float32(1) + x).astype(np.float64)  # rounded to float32 before the logarithm
    return Observation(
        torch=log1p,
        mindspore=mindspore,
        claim=np.log(one_plus).astype(np.float32),
        right=_exact(torch.log1p, x).float(),
        neighbour=_both(torch.log1p, ops.log1p, _values(0.5, 1, 2)),
    )


@difference(
    "expm1-small",
    "`ops.expm1` is exp(x) - 1 in float32: it loses the digits it exists for, 5 % at x = 1e-6.",
    torch="torch.expm1(x)",
    mindspore="ops.expm1(x)",
    expected="off",
    remedy="ops.expm1(x.astype(ms.float64)).astype(ms.float32)",
)
def expm1_small() -> Observation:
    x = _values(1e-6, 3e-6)
    expm1, mindspore = _both(torch.expm1, ops.expm1, x)
    return Observation(
        torch=expm1,
        mindspore=mindspore,
        claim=np.exp(x.astype(np.float64)).astype(np.float32) - np.float32(1),
        right=_exact(torch.expm1, x).float(),
        neighbour=_both(torch.expm1, ops.expm1, _values(0.5, 1, 2)),
    )


@difference(
    "erfinv-tail",
    "`ops.erfinv` is 2 % off at 0.999, in float64 as well.",
    torch="torch.erfinv(x)",
    mindspore="ops.erfinv(x)",
    expected="off",
    remedy="scipy.special.erfinv(x.asnumpy())",
)
def erfinv_tail() -> Observation:
    torch_off, ms_off = _inexact(torch.erfinv, ops.erfinv, _values(-0.999, 0.999), 0.01)
    return Observation(
        torch=torch_off,
        mindspore=ms_off,
        claim=True,
        right=False,
        neighbour=_inexact(torch.erfinv, ops.erfinv, _values(-0.9, 0.1, 0.9), 0.01),
    )


@difference(
    "logsigmoid-negative",
    "`ops.logsigmoid` and `nn.LogSigmoid` are log(sigmoid(x)): -inf below -88, with a NaN for its "
    "gradient.",
    torch="F.logsigmoid(x)",
    mindspore="ops.logsigmoid(x)",
    expected="off",
    remedy="-ops.softplus(-x)",
)
def logsigmoid_negative() -> Observation:
    x = _values(-100, -200)
    logsigmoid, mindspore = _both(F.logsigmoid, ops.logsigmoid, x)
    return Observation(
        torch=(logsigmoid, _gradients(F.logsigmoid, ops.logsigmoid, x)[0]),
        mindspore=(mindspore, _gradients(F.logsigmoid, ops.logsigmoid, x)[1]),
        claim=(_values(-np.inf, -np.inf), _values(np.nan, np.nan)),
        right=(x, _values(1, 1)),  # log(1 / (1 + exp(-x))) = x to 1e-43
        neighbour=_both(F.logsigmoid, lambda x: -ops.softplus(-x), x),
    )


@difference(
    "softplus-negative",
    "`ops.softplus` is log(1 + exp(x)) in float32, 17 % off at x = -15, but for the last elements "
    "of an array, which do not fill a vector of four.",
    torch="F.softplus(x)",
    mindspore="ops.softplus(x)",
    expected="off",
    remedy="ops.log1p(ops.exp(x.astype(ms.float64))).astype(ms.float32)",
)
def softplus_negative() -> Observation:
    x = _values(-15, -14, -15, -14)
    softplus, mindspore = _both(F.softplus, ops.softplus, x)
    rounded = (1 + np.exp(x.astype(np.float64))).astype(np.float32)
    return Observation(
        torch=softplus,
        mindspore=mindspore,
        claim=np.log(rounded.astype(np.float64)).astype(np.float32),
        right=_exact(F.softplus, x).float(),
        neighbour=_both(F.softplus, ops.softplus, _values(-1, 0, 1, 30)),
    )


# Gradients


@difference(
    "selu-gradient",
    "The gradient of `nn.SeLU` is wrong for every negative input: scale * (1 + selu(x)), where the "
    "derivative is scale * alpha * exp(x).",
    torch="F.selu(x).backward()",
    mindspore="ms.grad(ops.selu)(x)",
    expected="off",
    remedy="1.0507009873554805 * ops.where(x > 0, x, 1.6732632423543772 * ops.celu(x))",
)
def selu_gradient() -> Observation:
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    x = _values(-3, -1, -0.5)
    gradient, mindspore = _gradients(F.selu, ops.selu, x)
    exponential = np.exp(x.astype(np.float64))
    return Observation(
        torch=gradient,
        mindspore=mindspore,
        claim=(scale * (1 + scale * alpha * (exponential - 1))).astype(np.float32),
        right=(scale * alpha * exponential).astype(np.float32),
        neighbour=_gradients(
            F.selu,
            lambda x: scale * ops.where(x > 0, x, alpha * ops.celu(x)),
            _values(-3, -1, 0, 1, 200),
        ),
    )


@difference(
    "leaky-relu-gradient-at-0",
    "At 0 the gradient of `ops.leaky_relu` is the mean of the two slopes, PyTorch's the negative "
    "side's.",
    torch="F.leaky_relu(x).backward()",
    mindspore="ms.grad(ops.leaky_relu)(x)",
    expected="differs",
    remedy="ops.where(x > 0, x, 0.01 * x)",
)
def leaky_relu_gradient_at_0() -> Observation:
    def leaky(x: Any) -> Any:
        return ops.leaky_relu(x, alpha=0.01)

    gradient, mindspore = _gradients(F.leaky_relu, leaky, _values(0, 1))
    return Observation(
        torch=gradient,
        mindspore=mindspore,
        claim=_values((0.01 + 1) / 2, 1),
        neighbour=_gradients(F.leaky_relu, lambda x: ops.where(x > 0, x, 0.01 * x), _values(0, 1)),
    )


@difference(
    "hardtanh-gradient-at-limits",
    "At -1 and 1 the gradient of `ops.hardtanh` is 0.5, PyTorch's is 0.",
    torch="F.hardtanh(x).backward()",
    mindspore="ms.grad(ops.hardtanh)(x)",
    expected="differs",
    remedy="ops.where(ops.abs(x) < 1, x, ops.sign(x))",
)
def hardtanh_gradient_at_limits() -> Observation:
    gradient, mindspore = _gradients(F.hardtanh, ops.hardtanh, _values(-1, 0, 1))
    return Observation(
        torch=gradient,
        mindspore=mindspore,
        claim=_values(0.5, 1, 0.5),
        neighbour=_gradients(F.hardtanh, ops.hardtanh, _values(-2, -0.9, 0, 0.9, 2)),
    )


@difference(
    "relu6-gradient-at-6",
    "At 6 the gradient of `ops.relu6` is 1, PyTorch's is 0.",
    torch="F.relu6(x).backward()",
    mindspore="ms.grad(ops.relu6)(x)",
    expected="differs",
    remedy="ops.where(x < 6, ops.relu(x), 6.0)",
)
def relu6_gradient_at_6() -> Observation:
    gradient, mindspore = _gradients(F.relu6, ops.relu6, _values(0, 3, 6))
    return Observation(
        torch=gradient,
        mindspore=mindspore,
        claim=_values(0, 1, 1),
        neighbour=_gradients(F.relu6, ops.relu6, _values(0, 3, 5.9, 6.1)),
    )


@difference(
    "hardswish-gradient-at-3",
    "At -3 and 3 the gradient of `nn.HSwish` is that of the middle piece, PyTorch's that of the "
    "outer ones.",
    torch="F.hardswish(x).backward()",
    mindspore="ms.grad(ops.hardswish)(x)",
    expected="differs",
    remedy="ops.where(x <= -3, 0.0, ops.where(x >= 3, x, x * (x + 3) / 6))",
)
def hardswish_gradient_at_3() -> Observation:
    gradient, mindspore = _gradients(F.hardswish, ops.hardswish, _values(-3, 0, 3))
    return Observation(
        torch=gradient,
        mindspore=mindspore,
        claim=_values(-0.5, 0.5, 1.5),  # (2 x + 3) / 6
        neighbour=_gradients(F.hardswish, ops.hardswish, _values(-3.1, -2.9, 0, 2.9, 3.1)),
    )


# NaN and infinities


@difference(
    "relu-nan",
    "`ops.relu` turns NaN into 0, forward and backward: a diverged layer looks like a quiet one.",
    torch="F.relu(x)",
    mindspore="ops.relu(x)",
    expected="differs",
    remedy="ops.where(ops.isnan(x), x, ops.relu(x))",
)
def relu_nan() -> Observation:
    x = _values(np.nan, -1, 2)
    relu, mindspore = _both(F.relu, ops.relu, x)
    return Observation(
        torch=relu,
        mindspore=mindspore,
        claim=_values(0, 0, 2),
        neighbour=_both(F.relu, lambda x: ops.where(ops.isnan(x), x, ops.relu(x)), x),
    )


@difference(
    "clamp-nan",
    "`ops.clamp` and `ops.hardtanh` turn NaN into the lower limit.",
    torch="torch.clamp(x, -1, 1)",
    mindspore="ops.clamp(x, -1, 1)",
    expected="differs",
    remedy="ops.where(ops.isnan(x), x, ops.clamp(x, -1, 1))",
)
def clamp_nan() -> Observation:
    def torch_clamp(x: Any) -> Any:
        return torch.clamp(x, -1, 1)

    x = _values(np.nan, -3, 0.5)
    clamp, mindspore = _both(torch_clamp, lambda x: ops.clamp(x, -1, 1), x)
    return Observation(
        torch=clamp,
        mindspore=mindspore,
        claim=_values(-1, -1, 0.5),
        neighbour=_both(torch_clamp, lambda x: ops.clamp(x, -1, 1), _values(-np.inf, -3, 0.5)),
    )


@difference(
    "maximum-nan-order",
    "`ops.maximum(a, b)` gives b where a is NaN, and NaN where b is; PyTorch gives NaN for both.",
    torch="torch.maximum(a, b)",
    mindspore="ops.maximum(a, b)",
    expected="differs",
    remedy="ops.maximum(b, a)  # the one that may be NaN last",
)
def maximum_nan_order() -> Observation:
    a, b = _values(np.nan, 3), _values(1, 2)

    def both(left: Array, right: Array) -> tuple[Any, Any]:
        return (
            torch.maximum(torch.tensor(left), torch.tensor(right)),
            ops.maximum(ms.Tensor(left), ms.Tensor(right)),
        )

    maximum, mindspore = both(a, b)
    return Observation(
        torch=maximum, mindspore=mindspore, claim=_values(1, 3), neighbour=both(b, a)
    )


@difference(
    "softplus-nan",
    "`ops.softplus` turns NaN into infinity.",
    torch="F.softplus(x)",
    mindspore="ops.softplus(x)",
    expected="differs",
    remedy="ops.where(ops.isnan(x), x, ops.softplus(x))",
)
def softplus_nan() -> Observation:
    softplus, mindspore = _both(F.softplus, ops.softplus, _values(np.nan, 30))
    return Observation(
        torch=softplus,
        mindspore=mindspore,
        claim=_values(np.inf, 30),
        neighbour=_both(F.softplus, ops.softplus, _values(np.inf, 30)),
    )


@difference(
    "softmax-nan",
    "In a softmax with a NaN only that element becomes NaN and the others 0; in PyTorch all do.",
    torch="F.softmax(x, dim=-1)",
    mindspore="ops.softmax(x)",
    expected="differs",
    remedy="ops.isfinite(x).all()  # before it",
)
def softmax_nan() -> Observation:
    def torch_softmax(x: Any) -> Any:
        return F.softmax(x, dim=-1)

    softmax, mindspore = _both(torch_softmax, ops.softmax, _values(1, np.nan, 2))
    return Observation(
        torch=softmax,
        mindspore=mindspore,
        claim=_values(0, np.nan, 0),
        neighbour=_both(torch_softmax, ops.softmax, _values(1, -np.inf, 2)),
    )

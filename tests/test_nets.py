"""Nets: twins have the same weights, and compute the same to within float32."""

from __future__ import annotations

import numpy as np
import pytest

from msnb import data
from msnb.nets import LeNet

U = 2.0**-24  # unit roundoff of float32


def parameters(net):
    if hasattr(net, "state_dict") and hasattr(net, "eval"):
        return {name: value.detach().numpy() for name, value in net.state_dict().items()}
    return {parameter.name: parameter.asnumpy() for parameter in net.get_parameters()}


@pytest.fixture(scope="module")
def batch():
    return next(iter(data.digits(framework="numpy", batch_size=4)))


@pytest.fixture(scope="module")
def twins():
    return LeNet(seed=3)


def logits(net, images):
    if hasattr(net, "construct"):
        import mindspore

        return net(mindspore.Tensor(images)).asnumpy()
    import torch

    with torch.no_grad():
        return net(torch.tensor(images)).numpy()


def windows(x, k):
    return np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(2, 3))


def reference(weights, x):
    """LeNet in float64, and a limit for the error of a float32 evaluation of it.

    Rounding errors are taken as independent, with mean 0 and at most u (the model of Higham and
    Mary, SIAM J. Sci. Comput. 41, 2019). A sum y = Wx + b of n terms then rounds 2n times, each
    time by at most u times S = |W||x| + |b|: variance 2n u^2 S^2 at most, in any order of summing.
    What x brings along adds W^2 var(x). ReLU and the maximum of a window enlarge no error. The
    limit is six standard deviations. (The bound for the worst case, n u S and |W| times what x
    brings, is a tenth of the logits here: true, and useless.)
    """
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    x = x.astype(np.float64)
    var = np.zeros_like(x)

    def linear(name, apply, bias_shape):
        weight, bias = w[f"{name}.weight"], w[f"{name}.bias"].reshape(bias_shape)
        n = weight[0].size + 1
        size = apply(abs(x), abs(weight)) + abs(bias)
        return apply(x, weight) + bias, apply(var, weight**2) + 2 * n * U**2 * size**2

    def conv(x, weight):
        return np.einsum("nchwij,ocij->nohw", windows(x, 5), weight)

    def pool(x):
        n, c, h, width = x.shape
        return x.reshape(n, c, h // 2, 2, width // 2, 2).max((3, 5))

    for name in ("conv1", "conv2"):
        x, var = linear(name, conv, (-1, 1, 1))
        x, var = pool(np.maximum(x, 0)), pool(var)
    x, var = x.reshape(len(x), -1), var.reshape(len(x), -1)
    for name in ("fc1", "fc2", "fc3"):
        x, var = linear(name, lambda x, weight: x @ weight.T, (-1,))
        if name != "fc3":
            x = np.maximum(x, 0)
    return x, 6 * np.sqrt(var)


def test_the_twins_have_the_same_weights(twins):
    left, right = (parameters(net) for net in twins)
    assert list(left) == list(right) == list(LeNet.names)
    assert all(np.array_equal(left[name], right[name]) for name in left)
    assert all(value.dtype == np.float32 for value in right.values())
    assert all(value.std() > 0 for value in right.values())


@pytest.mark.parametrize(
    ("channels", "classes", "count"),
    [
        # weights + biases: conv1, conv2, fc1, fc2, fc3
        (
            1,
            10,
            (25 * 6 + 6) + (150 * 16 + 16) + (400 * 120 + 120) + (120 * 84 + 84) + (84 * 10 + 10),
        ),
        (3, 2, (75 * 6 + 6) + (150 * 16 + 16) + (400 * 120 + 120) + (120 * 84 + 84) + (84 * 2 + 2)),
    ],
)
def test_the_number_of_weights(channels, classes, count):
    for net in LeNet(channels, classes):
        assert sum(value.size for value in parameters(net).values()) == count
    assert count in (61706, 61326)


@pytest.mark.parametrize("channels", [1, 3])
def test_both_agree_with_float64_to_what_float32_allows(channels):
    images, _ = next(iter(data.digits(channels=channels, framework="numpy", batch_size=4)))
    pair = LeNet(channels=channels, seed=3)
    expected, limit = reference(parameters(pair[0]), images)
    found = [logits(net, images) for net in pair]
    for values in found:
        assert values.shape == (4, 10)
        assert (abs(values - expected) <= limit).all()
    assert (abs(found[0] - found[1]) <= 2 * limit).all()
    assert limit.max() < 1e-3 * abs(expected).max()  # a limit that allows anything proves nothing


@pytest.mark.parametrize("name", ["conv1.weight", "conv2.bias", "fc3.weight"])
def test_one_weight_that_is_off_is_found(name, batch):
    import mindspore

    torch_net, ms_net = LeNet(seed=3)
    expected, limit = reference(parameters(torch_net), batch[0])
    assert (abs(logits(ms_net, batch[0]) - expected) <= limit).all()
    parameter = ms_net.parameters_dict()[name]
    value = parameter.asnumpy().copy()
    value.flat[value.size // 2] += 0.01
    parameter.set_data(mindspore.Tensor(value))
    assert not (abs(logits(ms_net, batch[0]) - expected) <= limit).all()


def gradients(torch_net, ms_net, batch):
    """The gradients of the mean cross-entropy: float64 and float32 PyTorch, then MindSpore."""
    import copy

    import mindspore
    import torch

    images, labels = batch
    found = []
    for dtype in (torch.float64, torch.float32):
        net = copy.deepcopy(torch_net).to(dtype)
        loss = torch.nn.functional.cross_entropy(
            net(torch.tensor(images, dtype=dtype)), torch.tensor(labels)
        )
        loss.backward()
        found.append({name: value.grad.numpy() for name, value in net.named_parameters()})
    x, y = mindspore.Tensor(images), mindspore.Tensor(labels.astype(np.int32))
    grad = mindspore.value_and_grad(
        lambda x, y: mindspore.ops.cross_entropy(ms_net(x), y), None, ms_net.trainable_params()
    )
    _, values = grad(x, y)
    names = [parameter.name for parameter in ms_net.trainable_params()]
    found.append({name: value.asnumpy() for name, value in zip(names, values, strict=True)})
    return found


def off(found, exact, batch_size):
    """Parameters whose gradient is further from float64 than their longest sums explain.

    An entry of conv1's gradient adds batch x 28 x 28 products, each of which has passed every layer
    forwards (25, 150, 400, 120, 84 terms) and backwards (10, 84, 120, 16 x 25 at most). Six
    standard deviations of that many independent roundings, relative to the largest gradient.
    """
    terms = batch_size * 28 * 28 + (25 + 150 + 400 + 120 + 84) + (10 + 84 + 120 + 400)
    return [
        name
        for name, value in exact.items()
        if abs(found[name] - value).max() > 6 * np.sqrt(2 * terms) * U * abs(value).max()
    ]


def test_the_gradients_agree(twins, batch):
    exact, by_torch, by_mindspore = gradients(*twins, batch)
    assert off(by_torch, exact, 4) == []
    assert off(by_mindspore, exact, 4) == []


def test_a_wrong_gradient_is_found(batch):
    import mindspore

    torch_net, ms_net = LeNet(seed=3)
    ms_net.fc3.bias.set_data(mindspore.Tensor(ms_net.fc3.bias.asnumpy() * 1.1))
    exact, _, by_mindspore = gradients(torch_net, ms_net, batch)
    assert off(by_mindspore, exact, 4) == list(exact)


def test_one_side_alone_has_the_same_weights(twins):
    whole = parameters(twins[0])
    for net in (LeNet.torch(seed=3), LeNet.mindspore(seed=3)):
        assert all(np.array_equal(value, whole[name]) for name, value in parameters(net).items())
    other = parameters(LeNet.torch(seed=4))
    assert not any(np.array_equal(value, whole[name]) for name, value in other.items())


def test_both_sides_are_in_training_mode(twins):
    torch_net, ms_net = twins
    assert torch_net.training
    assert ms_net.training
    assert all(cell.training for _, cell in ms_net.cells_and_names())


def test_no_random_state_is_touched():
    import mindspore
    import torch

    def drawn():
        return mindspore.nn.Dense(3, 3).weight.asnumpy().copy()

    before = torch.get_rng_state()
    mindspore.set_seed(5)  # seeds NumPy too, from which MindSpore's initialisers draw
    expected = [drawn(), drawn()]
    mindspore.set_seed(5)
    found = [drawn()]
    LeNet(seed=9)
    found.append(drawn())
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"channels": 2}, ValueError, r"channels is 1 \(grey\) or 3 \(colour\), not 2"),
        ({"channels": True}, ValueError, "channels is 1"),
        ({"num_classes": 0}, ValueError, "num_classes is a whole number, 1 or more, not 0"),
        ({"num_classes": 2.5}, TypeError, "num_classes is a whole number, not 2.5"),
        ({"seed": -1}, ValueError, "seed is a whole number, 0 or more, not -1"),
        ({"seed": "0"}, TypeError, "seed is a whole number, not '0'"),
    ],
)
def test_bad_arguments_get_a_sentence(options, error, text):
    for make in (LeNet, LeNet.torch, LeNet.mindspore):
        with pytest.raises(error, match=text):
            make(**options)


def test_a_twin_whose_names_or_shapes_differ_is_refused():
    torch_net, ms_net = LeNet(channels=1)

    class Forgetful(type(LeNet)):
        names = {k: v for k, v in LeNet.names.items() if k != "fc2.bias"}  # noqa: RUF012

    with pytest.raises(ValueError, match=r"PyTorch's parameters are .*'fc2.bias'"):
        Forgetful().copy_weights(torch_net, ms_net)
    with pytest.raises(ValueError, match=r"conv1.weight is float32\(6, 3, 5, 5\).*\(6, 1, 5, 5\)"):
        LeNet.copy_weights(LeNet.torch(channels=3), ms_net)

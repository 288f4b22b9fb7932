"""Losses: label dtypes, defaults, what is ignored, and where a logarithm ends."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import mint, nn, ops

from msnb.differences import Observation, Raised, attempt, difference

Array = np.ndarray[Any, Any]

_LOGITS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
_LABELS = np.array([0, 2, 1, 2])


def _cross_entropy(logits: Array, labels: Array) -> Array:
    """The loss of each sample from its definition, in float64, returned as float32."""
    logits = logits.astype(np.float64)
    log_sum = np.log(np.exp(logits).sum(1))
    return np.asarray(log_sum - logits[np.arange(len(labels)), labels], np.float32)


def _torch_ce(labels: Array, **settings: Any) -> Any:
    return F.cross_entropy(torch.tensor(_LOGITS), torch.tensor(labels), **settings)


def _ms_ce(labels: Array, **settings: Any) -> Any:
    loss = nn.CrossEntropyLoss(**settings)
    return loss(ms.Tensor(_LOGITS), ms.Tensor(labels.astype(np.int32)))


def _softmax_ce(labels: Array, **settings: Any) -> Any:
    loss = nn.SoftmaxCrossEntropyWithLogits(**settings)
    return loss(ms.Tensor(_LOGITS), ms.Tensor(labels))


@difference(
    "int64-labels",
    "`nn.CrossEntropyLoss` refuses int64 labels, the dtype PyTorch asks for; it takes int32.",
    torch="F.cross_entropy(logits, int64_labels)",
    mindspore="nn.CrossEntropyLoss()(logits, int64_labels)",
    expected="raises",
    remedy="nn.CrossEntropyLoss()(logits, labels.astype(ms.int32))",
)
def int64_labels() -> Observation:
    labels = ms.Tensor(_LABELS)
    return Observation(
        torch=_torch_ce(_LABELS),
        mindspore=attempt(nn.CrossEntropyLoss(), ms.Tensor(_LOGITS), labels),
        claim=Raised("TypeError", "the 'labels' should be Int32, but got 'mindspore.int64'"),
        neighbour=(_torch_ce(_LABELS), ops.cross_entropy(ms.Tensor(_LOGITS), labels)),
    )


@difference(
    "int32-labels",
    "int32 labels, which PyTorch refuses, are what the MindSpore loss layers want.",
    torch="F.cross_entropy(logits, int32_labels)",
    mindspore="nn.CrossEntropyLoss()(logits, int32_labels)",
    expected="accepts",
    remedy="dataset.map(transforms.TypeCast(ms.int32), 'label')",
)
def int32_labels() -> Observation:
    return Observation(
        torch=attempt(_torch_ce, _LABELS.astype(np.int32)),
        mindspore=_ms_ce(_LABELS),
        claim=np.mean(_cross_entropy(_LOGITS, _LABELS)),
        neighbour=(_torch_ce(_LABELS), _ms_ce(_LABELS)),
    )


@difference(
    "softmax-cross-entropy-reduction",
    "`SoftmaxCrossEntropyWithLogits` does not reduce by default: it returns one loss a sample.",
    torch="nn.CrossEntropyLoss()(logits, labels)",
    mindspore="nn.SoftmaxCrossEntropyWithLogits(sparse=True)(logits, labels)",
    expected="differs",
    remedy='nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")',
)
def softmax_cross_entropy_reduction() -> Observation:
    return Observation(
        torch=_torch_ce(_LABELS),
        mindspore=_softmax_ce(_LABELS, sparse=True),
        claim=_cross_entropy(_LOGITS, _LABELS),
        neighbour=(_torch_ce(_LABELS), _softmax_ce(_LABELS, sparse=True, reduction="mean")),
    )


@difference(
    "softmax-cross-entropy-sparse",
    "`SoftmaxCrossEntropyWithLogits` wants one-hot labels unless `sparse=True`: class indices are "
    "refused.",
    torch="nn.CrossEntropyLoss()(logits, labels)",
    mindspore='nn.SoftmaxCrossEntropyWithLogits(reduction="mean")(logits, labels)',
    expected="raises",
    remedy='nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")',
)
def softmax_cross_entropy_sparse() -> Observation:
    one_hot = np.eye(3, dtype=np.float32)[_LABELS]
    return Observation(
        torch=_torch_ce(_LABELS),
        mindspore=attempt(_softmax_ce, _LABELS, reduction="mean"),
        claim=Raised("TypeError", "the input type must be same"),
        neighbour=(_torch_ce(_LABELS), _softmax_ce(one_hot, reduction="mean")),
    )


@difference(
    "label-too-large",
    "A label beyond the last class gives `SoftmaxCrossEntropyWithLogits(sparse=True)` a loss of 0 "
    "for that sample, without a word; PyTorch raises.",
    torch="F.cross_entropy(three_logits, label_3)",
    mindspore="nn.SoftmaxCrossEntropyWithLogits(sparse=True)(three_logits, label_3)",
    expected="accepts",
    remedy="nn.CrossEntropyLoss(), which raises",
)
def label_too_large() -> Observation:
    labels = np.array([0, 3, 1, 2])
    each = _cross_entropy(_LOGITS, np.array([0, 0, 1, 2]))
    return Observation(
        torch=attempt(_torch_ce, labels),
        mindspore=_softmax_ce(labels, sparse=True),
        claim=np.where(labels == 3, np.float32(0), each),
        neighbour=(attempt(_torch_ce, labels), attempt(_ms_ce, labels)),
    )


@difference(
    "negative-label",
    "`nn.CrossEntropyLoss` counts a label of -1 from the end, as the last class; PyTorch raises.",
    torch="F.cross_entropy(logits, labels_with_minus_1)",
    mindspore="nn.CrossEntropyLoss()(logits, labels_with_minus_1)",
    expected="accepts",
    remedy="nn.CrossEntropyLoss(ignore_index=-1) where -1 means no label",
)
def negative_label() -> Observation:
    labels = np.array([0, -1, 1, 2])
    return Observation(
        torch=attempt(_torch_ce, labels),
        mindspore=_ms_ce(labels),
        claim=np.mean(_cross_entropy(_LOGITS, labels % 3)),
        neighbour=(_torch_ce(labels, ignore_index=-1), _ms_ce(labels, ignore_index=-1)),
    )


@difference(
    "ignored-label",
    "`SoftmaxCrossEntropyWithLogits` has no `ignore_index`: it raises for -100, which PyTorch "
    "leaves out of the mean.",
    torch="F.cross_entropy(logits, labels_with_minus_100)",
    mindspore="nn.SoftmaxCrossEntropyWithLogits(sparse=True, ...)(logits, labels_with_minus_100)",
    expected="raises",
    remedy="nn.CrossEntropyLoss(), whose ignore_index is -100 as well",
)
def ignored_label() -> Observation:
    labels = np.array([0, -100, 1, 2])
    return Observation(
        torch=_torch_ce(labels),
        mindspore=attempt(_softmax_ce, labels, sparse=True, reduction="mean"),
        claim=Raised("RuntimeError", "label[index] must >= 0"),
        neighbour=(_torch_ce(labels), _ms_ce(labels)),
    )


@difference(
    "all-ignored",
    "With every label ignored the mean is 0/0: both frameworks give NaN as the loss.",
    torch="F.cross_entropy(logits, all_minus_100)",
    mindspore="nn.CrossEntropyLoss()(logits, all_minus_100)",
    expected="agrees",
)
def all_ignored() -> Observation:
    labels = np.full(4, -100)
    return Observation(
        torch=_torch_ce(labels),
        mindspore=_ms_ce(labels),
        claim=np.float32(np.nan),
        neighbour=(_torch_ce(labels), _ms_ce(labels, reduction="sum")),
    )


@difference(
    "class-weights",
    "Class weights, label smoothing and ignored labels together: the mean is divided by the sum of "
    "the weights used, in both.",
    torch="nn.CrossEntropyLoss(weight, ignore_index=-100, label_smoothing=0.1)",
    mindspore="nn.CrossEntropyLoss(weight, ignore_index=-100, label_smoothing=0.1)",
    expected="agrees",
)
def class_weights() -> Observation:
    labels = np.array([0, -100, 1, 2])
    weight = np.array([1, 2, 3], np.float32)
    right = _torch_ce(labels, weight=torch.tensor(weight), label_smoothing=0.1)
    weight_ms = ms.Tensor(weight)
    naive = _ms_ce(labels, weight=weight_ms, label_smoothing=0.1, reduction="none").mean()
    return Observation(
        torch=right,
        mindspore=_ms_ce(labels, weight=weight_ms, label_smoothing=0.1),
        neighbour=(right, naive),
    )


@difference(
    "smooth-l1-reduction",
    "`nn.SmoothL1Loss` and `ops.smooth_l1_loss` do not reduce by default: they return one loss an "
    "element.",
    torch="nn.SmoothL1Loss()(x, y)",
    mindspore="nn.SmoothL1Loss()(x, y)",
    expected="differs",
    remedy='nn.SmoothL1Loss(reduction="mean")',
)
def smooth_l1_reduction() -> Observation:
    x, y = np.array([0, 1, 5], np.float32), np.array([0.5, 3, 5], np.float32)
    right = F.smooth_l1_loss(torch.tensor(x), torch.tensor(y))
    return Observation(
        torch=right,
        mindspore=nn.SmoothL1Loss()(ms.Tensor(x), ms.Tensor(y)),
        claim=np.array([0.125, 1.5, 0], np.float32),  # d*d/2 below 1, |d| - 1/2 above
        neighbour=(right, nn.SmoothL1Loss(reduction="mean")(ms.Tensor(x), ms.Tensor(y))),
    )


@difference(
    "smooth-l1-beta-zero",
    "`beta=0`, which PyTorch reads as the plain L1 loss, is refused.",
    torch="nn.SmoothL1Loss(beta=0.0)",
    mindspore='nn.SmoothL1Loss(beta=0.0, reduction="mean")',
    expected="raises",
    remedy="nn.L1Loss()",
)
def smooth_l1_beta_zero() -> Observation:
    x, y = np.array([0, 1, 5], np.float32), np.array([0.5, 3, 5], np.float32)
    right = F.smooth_l1_loss(torch.tensor(x), torch.tensor(y), beta=0.0)
    loss = nn.SmoothL1Loss(beta=0.0, reduction="mean")
    return Observation(
        torch=right,
        mindspore=attempt(loss, ms.Tensor(x), ms.Tensor(y)),
        claim=Raised("RuntimeError", "the values for beta should greater than 0, but got 0"),
        neighbour=(right, nn.L1Loss()(ms.Tensor(x), ms.Tensor(y))),
    )


def _binary_cross_entropy(probabilities: list[float], labels: list[float]) -> tuple[Any, Any]:
    return (
        F.binary_cross_entropy(torch.tensor(probabilities), torch.tensor(labels)),
        nn.BCELoss()(ms.Tensor(probabilities), ms.Tensor(labels)),
    )


@difference(
    "bce-logarithm",
    "`nn.BCELoss` adds 1e-12 to the probability, so a sure and wrong answer costs 27.6; PyTorch "
    "holds the logarithm above -100.",
    torch="nn.BCELoss()(0.0, 1.0)",
    mindspore="nn.BCELoss()(0.0, 1.0)",
    expected="differs",
    remedy="nn.BCEWithLogitsLoss(), exact in both",
)
def bce_logarithm() -> Observation:
    seen = _binary_cross_entropy([0.0, 1.0], [1.0, 0.0])
    return Observation(
        torch=seen[0],
        mindspore=seen[1],
        claim=np.float32(-np.log(1e-12)),
        neighbour=_binary_cross_entropy([1e-3, 0.9], [1.0, 0.0]),
    )


@difference(
    "bce-of-one-element",
    "`nn.BCELoss` of a single element is twice the right value (the gradient is right): a last "
    "batch of one sample shows it.",
    torch="nn.BCELoss()([0.3], [0.8])",
    mindspore="nn.BCELoss()([0.3], [0.8])",
    expected="off",
    remedy="nn.BCEWithLogitsLoss(), or drop_remainder=True in batch()",
)
def bce_of_one_element() -> Observation:
    right = -(0.8 * np.log(0.3) + 0.2 * np.log(0.7))
    seen = _binary_cross_entropy([0.3], [0.8])
    return Observation(
        torch=seen[0],
        mindspore=seen[1],
        claim=np.float32(2 * right),
        right=np.float32(right),
        neighbour=_binary_cross_entropy([0.3, 0.3], [0.8, 0.8]),
    )


@difference(
    "kl-log-target",
    "KL divergence has no `log_target`: the target is always a probability.",
    torch="F.kl_div(log_p, log_q, log_target=True)",
    mindspore="ops.kl_div(log_p, log_q, log_target=True)",
    expected="raises",
    remedy="ops.kl_div(log_p, ops.exp(log_q))",
)
def kl_log_target() -> Observation:
    log_p = np.log(np.array([[0.2, 0.3, 0.5]], np.float32))
    log_q = np.log(np.array([[0.1, 0.2, 0.7]], np.float32))
    right = F.kl_div(torch.tensor(log_p), torch.tensor(log_q), reduction="sum", log_target=True)
    p, q = ms.Tensor(log_p), ms.Tensor(log_q)
    return Observation(
        torch=right,
        mindspore=attempt(ops.kl_div, p, q, log_target=True),
        claim=Raised("TypeError", "unexpected keyword argument 'log_target'"),
        neighbour=(right, ops.kl_div(p, ops.exp(q), reduction="sum")),
    )


@difference(
    "masked-logit",
    "A logit of -inf on a class that is not the label makes the loss NaN: -inf is multiplied by "
    "zero somewhere.",
    torch="F.cross_entropy([[0, -inf]], [0])",
    mindspore="nn.CrossEntropyLoss()([[0, -inf]], [0])",
    expected="off",
    remedy="mask with -1e4, not with -inf",
)
def masked_logit() -> Observation:
    def both(masked: float) -> tuple[Any, Any]:
        logits = np.array([[0, masked]], np.float32)
        return (
            F.cross_entropy(torch.tensor(logits), torch.tensor([0])),
            nn.CrossEntropyLoss()(ms.Tensor(logits), ms.Tensor([0], ms.int32)),
        )

    seen = both(-np.inf)
    return Observation(
        torch=seen[0],
        mindspore=seen[1],
        claim=np.float32(np.nan),
        right=np.log1p(np.exp(-np.inf)).astype(np.float32),
        neighbour=both(-1e4),
    )


@difference(
    "log-sigmoid-underflow",
    "`ops.logsigmoid` is -inf below about -88, where exp underflows; the right value is x itself.",
    torch="F.logsigmoid(-1000.0)",
    mindspore="ops.logsigmoid(-1000.0)",
    expected="off",
    remedy="-ops.softplus(-x)",
)
def log_sigmoid_underflow() -> Observation:
    x = np.array([-1000, 0], np.float32)
    right = np.float32(-np.logaddexp(0, -x.astype(np.float64)))
    return Observation(
        torch=F.logsigmoid(torch.tensor(x)),
        mindspore=ops.logsigmoid(ms.Tensor(x)),
        claim=np.array([-np.inf, np.log(0.5)], np.float32),
        right=right,
        neighbour=(F.logsigmoid(torch.tensor(x)), -ops.softplus(-ms.Tensor(x))),
    )


@difference(
    "cosine-of-zero-vector",
    "The cosine loss of a zero vector is NaN (0/0); PyTorch adds a small number to the norms.",
    torch="nn.CosineEmbeddingLoss()(zeros, y, target)",
    mindspore="nn.CosineEmbeddingLoss()(zeros, y, target)",
    expected="differs",
    remedy="1 - (x * y).sum(1) / ops.sqrt(((x * x).sum(1) + 1e-12) * ((y * y).sum(1) + 1e-12))",
)
def cosine_of_zero_vector() -> Observation:
    a = np.array([[0, 0], [1, 0]], np.float32)
    b = np.array([[3, 4], [3, 4]], np.float32)
    target = np.ones(2, np.float32)
    right = F.cosine_embedding_loss(torch.tensor(a), torch.tensor(b), torch.tensor(target))
    x, y = ms.Tensor(a), ms.Tensor(b)
    safe = (x * y).sum(1) / ops.sqrt(((x * x).sum(1) + 1e-12) * ((y * y).sum(1) + 1e-12))
    return Observation(
        torch=right,
        mindspore=nn.CosineEmbeddingLoss()(x, y, ms.Tensor(target)),
        claim=np.float32(np.nan),
        neighbour=(right, (1 - safe).mean()),
    )


@difference(
    "triplet-margin",
    "`nn.TripletMarginLoss` has no CPU kernel.",
    torch="F.triplet_margin_loss(anchor, positive, negative)",
    mindspore="nn.TripletMarginLoss()(anchor, positive, negative)",
    expected="raises",
    remedy="ops.relu(ops.norm(a - p + 1e-6, dim=1) - ops.norm(a - n + 1e-6, dim=1) + 1).mean()",
)
def triplet_margin() -> Observation:
    arrays = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
    right = F.triplet_margin_loss(*map(torch.tensor, arrays))
    a, p, n = map(ms.Tensor, arrays)
    distance = ops.norm(a - p + 1e-6, dim=1) - ops.norm(a - n + 1e-6, dim=1)
    return Observation(
        torch=right,
        mindspore=attempt(nn.TripletMarginLoss(), a, p, n),
        claim=Raised("RuntimeError", "Kernel select failed"),
        neighbour=(right, ops.relu(distance + 1).mean()),
    )


@difference(
    "soft-margin",
    "`nn.SoftMarginLoss` has no CPU kernel.",
    torch="F.soft_margin_loss(x, y)",
    mindspore="nn.SoftMarginLoss()(x, y)",
    expected="raises",
    remedy="ops.softplus(-y * x).mean()",
)
def soft_margin() -> Observation:
    x, y = np.array([[0.5, -2], [1, 3]], np.float32), np.array([[1, 1], [-1, 1]], np.float32)
    right = F.soft_margin_loss(torch.tensor(x), torch.tensor(y))
    return Observation(
        torch=right,
        mindspore=attempt(nn.SoftMarginLoss(), ms.Tensor(x), ms.Tensor(y)),
        claim=Raised("RuntimeError", "The kernel SoftMarginLoss unregistered"),
        neighbour=(right, ops.softplus(-ms.Tensor(y) * ms.Tensor(x)).mean()),
    )


@difference(
    "mint-cross-entropy",
    "`mint.nn.functional.cross_entropy`, the one whose name and rules are PyTorch's, has no CPU "
    "kernel.",
    torch="F.cross_entropy(logits, labels)",
    mindspore="mint.nn.functional.cross_entropy(logits, labels)",
    expected="raises",
    remedy="ops.cross_entropy(logits, labels), which takes int64 and int32 labels",
)
def mint_cross_entropy() -> Observation:
    logits, labels = ms.Tensor(_LOGITS), ms.Tensor(_LABELS)
    return Observation(
        torch=_torch_ce(_LABELS),
        mindspore=attempt(mint.nn.functional.cross_entropy, logits, labels),
        claim=Raised("RuntimeError", "unregistered"),
        neighbour=(_torch_ce(_LABELS), ops.cross_entropy(logits, labels)),
    )

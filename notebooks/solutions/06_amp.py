"""Solutions to the exercises of 06_amp. Try them yourself first."""

from __future__ import annotations

from mindspore import ops


# safe_norm and safe_loss
def safe_norm(x):
    centred = x - x.mean(-1, keep_dims=True)
    return centred / ops.sqrt((centred**2).mean(-1, keep_dims=True) + 1e-5)


def safe_loss(scores, labels):
    top = scores.max(-1, keepdims=True)
    chosen = (scores * ops.one_hot(labels, 10, 1.0, 0.0).astype(scores.dtype)).sum(-1)
    return (ops.log(ops.exp(scores - top).sum(-1)) + top.squeeze(-1) - chosen).mean()


# keep_in_float32
def keep_in_float32():
    return {"square", "mean", "root"}

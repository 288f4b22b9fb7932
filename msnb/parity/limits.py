"""How far two correct computations may be apart: dtype, length of the reduction, magnitude.

A sum of ``n`` terms is rounded ``n - 1`` times. The worst case, every rounding in the same
direction, is ``(n - 1) u sum|x_i|`` with ``u = eps / 2`` (Higham, *Accuracy and Stability of
Numerical Algorithms*, 2nd ed., SIAM 2002, section 4.2), and ``log2(n) u sum|x_i|`` where terms are
added in pairs. Roundings rarely agree in direction: taken as independent of mean zero they leave
``lambda sqrt(n) u sum|x_i|``, with a probability of failure that falls as ``exp(-lambda**2 / 2)``
(Higham and Mary, *A new approach to probabilistic rounding error analysis*, SIAM J. Sci. Comput.
41(5), 2019). The limit here is that bound with ``lambda = 4``, plus a constant for the functions
around the sum::

    limit = eps * (24 + 2 * sqrt(n)) * magnitude              float32, float64, complex
    limit = (4 * eps + 2 * sqrt(n) * eps32) * magnitude       float16, bfloat16, float8

The 24 is measured, not derived: MindSpore 2.10 on CPU returns float32 ``exp`` and what is built on
it up to 25 eps off where arguments are of order 1. The form for small dtypes takes it that sums
are collected in float32: so do the half-precision matrix product and mean of torch and MindSpore on
CPU, at 16,384 terms still half an eps off.

Worked: float32 has eps = 1.19e-07. For n = 3,456 terms of magnitude 1 (a 3x3 convolution over 384
channels) the walk gives 2 * sqrt(3456) = 118, so the limit is 142 eps = 1.69e-05. The worst case
would be 3,455 * u = 2.06e-04, twelve times as much: too loose to notice a fault of one part in
ten thousand. Measured in float32 on CPU, sums and matrix products of 10 to 100,000 random terms,
added in any order, stay below 0.4 * sqrt(n) eps. The model fails where roundings do agree: 100,000
times 0.1 added one by one ends 1,200 eps off, more than the 656 eps allowed here. That is a
finding, not a false alarm.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

EPS = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "complex128": 2.0**-52,
    "complex64": 2.0**-23,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
"""Machine epsilon, the distance from 1 to the next number, by dtype name."""

_BASE = 24.0
_BASE_SMALL = 4.0
_WALK = 2.0
_LONGEST = {True: 16, False: 16_384}  # cap of an estimate, by whether the dtype is small
_UNKNOWN = 1024  # too few elements to estimate from
_ENOUGH = 16


def is_float(dtype: str) -> bool:
    """Whether values of this dtype are compared within a limit; integers and bool are exact."""
    return dtype in EPS


def coarser(first: str, second: str) -> str:
    """The dtype of the two that resolves less; the floating one where the other is exact.

    >>> coarser("float32", "float16"), coarser("int64", "float32")
    ('float16', 'float32')
    """
    return max(first, second, key=lambda dtype: EPS.get(dtype, 0.0))


def limit(dtype: str, reduction: float = 1, scale: Any = 1.0, *, collected: str = "") -> Any:
    """Largest difference between two correct results of one computation.

    ``dtype`` is a name such as ``"float32"``; ``reduction`` the number of terms summed into one
    element; ``scale`` the magnitude it is relative to, a number or an array; ``collected`` the
    dtype in which sums are collected, by default ``dtype``, or float32 for the small ones. See the
    module for derivation and sources. Zero for integers and bool.

    Raises ``ValueError`` for a reduction below 1.

    >>> f"{limit('float32', reduction=3456):.3g}"
    '1.69e-05'
    >>> f"{limit('float32', reduction=10, scale=1e3):.3g}"
    '0.00361'
    """
    if not reduction >= 1 or not math.isfinite(reduction):
        raise ValueError(
            f"reduction={reduction!r}: the number of terms summed into one element, 1 or more"
        )
    if not is_float(dtype):
        return 0.0 * scale
    eps = EPS[dtype]
    small = _is_small(dtype)
    step = EPS[collected or ("float32" if small else dtype)]
    return ((_BASE_SMALL if small else _BASE) * eps + _WALK * math.sqrt(reduction) * step) * scale


def _is_small(dtype: str) -> bool:
    return EPS[dtype] > EPS["float32"]


def magnitude(actual: Any, expected: Any) -> float:
    """The smaller root mean square of two arrays, over their finite elements that are not zero.

    An element that cancels to nearly zero carries the rounding of its neighbours' size, so each
    element is judged by ``max(|expected|, magnitude)``. The smaller of the two, so that one wild
    value on either side does not excuse the rest; zeros do not count, so that a sparse gradient is
    judged by its rows in use.
    """
    return min(_rms(actual), _rms(expected))


def _rms(values: Any) -> float:
    with np.errstate(all="ignore"):
        flat = values.ravel()
        square = float(np.vdot(flat, flat).real)
        if math.isfinite(square) and square > 0:
            return math.sqrt(square / np.count_nonzero(flat))
        size = np.abs(flat)
        size = size[np.isfinite(size) & (size > 0)]
        if not size.size:
            return 0.0
        top = float(size.max())
        return top * math.sqrt(float(np.mean(np.square(size / top))))


def estimate(dtype: str, actual: Any, expected: Any, scale: Any) -> int:
    """The length of the reduction, collected in ``dtype``, read from how noisy the difference is.

    Rounding leaves a difference of about ``0.24 sqrt(n) eps`` (a walk of ``n`` steps of rms
    ``u / sqrt(3)`` on partial sums that grow evenly, on both sides), whose 90 % quantile is
    ``0.4 sqrt(n) eps``. It is taken over the elements of full size, after the best common factor is
    removed: a wrong factor is not noise. At most 16,384 (16 for the small dtypes), so a fault
    everywhere cannot excuse itself; 1,024 where fewer than 16 elements say anything.
    """
    step = max(1, expected.size // 16_384)
    a, e = actual.ravel()[::step], expected.ravel()[::step]
    size = np.broadcast_to(scale, expected.shape).ravel()[::step]
    with np.errstate(all="ignore"):
        full = np.isfinite(a) & np.isfinite(e) & (np.abs(e) >= 0.1 * size) & (size > 0)
        a, e, size = a[full], e[full], size[full]
        longest = _LONGEST[_is_small(dtype)]
        if e.size < _ENOUGH:
            return min(_UNKNOWN, longest)
        difference = a - e
        excess = np.vdot(e, difference) / np.vdot(e, e)
        if np.isfinite(excess):
            difference = difference - excess * e
        noise = float(np.quantile(np.abs(difference) / np.maximum(np.abs(e), size), 0.9))
    walk = noise / (0.4 * EPS[dtype])
    return int(min(max(1.0, walk * walk), longest)) if math.isfinite(walk) else longest

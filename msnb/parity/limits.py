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

The 24 is measured, not derived: MindSpore 2.10 on CPU returns float32 ``exp`` up to 27 eps off
where the argument is below 1 in size (51 eps at -11), softmax of standard normal values 25 eps off.
The form for small dtypes takes it that sums are collected in float32: so do the half-precision
matrix product and mean of torch and MindSpore on CPU, at 16,384 terms still half an eps off.

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
    """The size of two arrays: the smaller root mean fourth power of their elements in use.

    An element that cancels to nearly zero carries the rounding of its neighbours' size, so each
    element is judged by ``max(|expected|, magnitude)``. The fourth power gives the large neighbours
    their weight: normal values of variance 1 have the size 1.32, a gradient of softmax with one
    large element in a thousand a fifth of that element. The smaller of the two arrays', so that one
    wild value on either side does not excuse the rest; finite elements that are not zero count, so
    that a sparse gradient is judged by its rows in use.
    """
    return min(_size(actual), _size(expected))


def _size(values: Any) -> float:
    flat = values.ravel()
    with np.errstate(all="ignore"):
        total = 0.0
        for start in range(0, flat.size, 65_536):  # in pieces that stay in the cache
            square = np.square(np.abs(flat[start : start + 65_536]))
            total += float(np.vdot(square, square))
        if 1e-280 < total < math.inf:
            return math.sqrt(math.sqrt(total / np.count_nonzero(flat)))
        size = np.abs(flat)
        size = size[np.isfinite(size) & (size > 0)]
        if not size.size:
            return 0.0
        top = float(size.max())
        mean = float(np.mean((size / top) ** 4))
        return top * math.sqrt(math.sqrt(mean))


def estimate(dtype: str, actual: Any, expected: Any, scale: Any) -> int:
    """The length of the reduction, collected in ``dtype``, read from how noisy the difference is.

    Rounding leaves a difference of about ``0.24 sqrt(n) eps`` (a walk of ``n`` steps of rms
    ``u / sqrt(3)`` on partial sums that grow evenly, on both sides), whose 90 % quantile is
    ``0.4 sqrt(n) eps`` and whose median is ``0.16 sqrt(n) eps``. The first counts, held to three
    times the second (but for the shortest sums), so that a fault in a fifth of the elements is not
    noise. Both are taken over the elements of full size, after the best common factor is removed: a
    wrong factor is no noise either. At most 16,384 (16 for the small dtypes), so a fault
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
        difference = difference - np.median((difference / e).real) * e
        noise = np.abs(difference) / np.maximum(np.abs(e), size)
        middle, most = (float(q) for q in np.quantile(noise, (0.5, 0.9)) / EPS[dtype])
    if not math.isfinite(most):
        return longest
    walk = min(most / 0.4, max(3 * middle / 0.16, 8.0))
    return int(min(max(1.0, walk * walk), longest))

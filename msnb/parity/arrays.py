"""Two results side by side: shape, dtype, values, and what the difference looks like."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from msnb.parity import limits
from msnb.parity.patterns import find_patterns
from msnb.parity.pictures import Picture
from msnb.report import Check, Report

_NUMBER = (bool, int, float, complex)
_REMEDY_NONE = (
    "find out what differs first: the inputs, the weights (msnb.copy_weights), the mode "
    "(set_train, eval), the defaults of the layer"
)


def compare(
    actual: Any,
    expected: Any,
    *,
    reference: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
    reduction: int | None = None,
    scale: Any = None,
    dtype_strict: bool = True,
    equal_nan: bool = True,
    signed_zero: bool = False,
    names: tuple[str, str] | None = None,
    title: str = "compare",
) -> Report:
    """Whether two results agree in structure, shape, dtype and values, and if not, how they differ.

    ``actual`` and ``expected`` are tensors of either framework, NumPy arrays, Python numbers, or
    tuples, lists, namedtuples and dicts of them, of any shape; None agrees with None. Complex,
    bfloat16 (compared as float32 with bfloat16's epsilon), empty and 0-d ones are welcome. A list
    or tuple of numbers only is read as an array; a Python number has no dtype to compare. Nothing
    is broadcast. Integers and bool agree exactly or not at all.

    Floating values agree within a limit that comes from the dtype's epsilon (the coarser of the
    two), the number of terms summed into one element, ``reduction`` (estimated from the noise of
    the difference where it is not given), and the magnitude: ``max(|expected|, root mean fourth
    power)`` for each element. See ``msnb.parity.limits`` for derivation and sources. ``scale``, a
    number or an array that broadcasts, replaces that mean where terms cancel: ``sqrt(sum(x**2))``
    over the terms of each element is sharp, ``sum(|x|)`` is safe, 0 holds each element to its own
    size. ``rtol`` and ``atol`` replace all of it by ``atol + rtol * |expected|``; the one that is
    not given is zero.

    ``reference`` is the truth in float64, in the structure of ``expected``: then a check for each
    side says which one is off, and two sides that are both right cannot fail for the distance
    between them. ``signed_zero`` adds a check that tells -0.0 from 0.0, and ``equal_nan=False``
    makes NaN differ from NaN. ``names`` is what to call the sides; by default the frameworks,
    where they are two.

    The Report has the checks ``shape``, ``dtype`` and ``values``, each under its path where there
    is a structure (``[0]['loss']: values``); ``found`` holds the pattern (a row, a gate, a factor,
    a shift ...), ``remedy`` its usual cause. Metrics of ``values``: ``size``, ``off``, ``max_abs``,
    ``max_rel``, ``limit`` (at the worst element), ``limits`` (the worst difference in units of its
    limit), ``nonfinite`` (how many NaN or Inf only one side has), ``reduction``. ``report.plot()``
    draws the worst array.

    Raises ``TypeError`` for what is no array (text, a layer, a function, objects) and
    ``ValueError`` for tolerances, a reduction, a scale or a reference that make no sense.

    >>> right = np.arange(32, dtype=np.float32).reshape(4, 8)
    >>> wrong = right.copy()
    >>> wrong[3] *= 4
    >>> report = compare(wrong, right, reduction=1)
    >>> report.worst, report["values"].metrics["off"]
    ('failed', 8)
    >>> print(report["values"].found)
    only the last index of axis 0 (size 4) differs, the last row; there actual is 4 times expected
    >>> print(compare(1 + 1e-7, 1.0, rtol=1e-6))
    compare: ok (1 skipped, 2 ok)
      ok       shape   ()
      skipped  dtype   a Python number has no dtype
      ok       values  max |difference| 1e-07, limit 1e-06 (1 element)
    """
    options = _Options(
        rtol=_tolerance("rtol", rtol),
        atol=_tolerance("atol", atol),
        reduction=_reduction(reduction),
        scale=None if scale is None else _scale(scale),
        dtype_strict=dtype_strict,
        equal_nan=equal_nan,
        signed_zero=signed_zero,
    )
    sides = names or _names(actual, expected)
    checks: list[Check] = []
    pictures: list[tuple[float, Picture]] = []
    for leaf in _pairs(actual, expected, reference, "", sides):
        if isinstance(leaf, Check):
            checks.append(leaf)
        else:
            found, picture = _compare_arrays(leaf, options, sides)
            checks += found
            if picture is not None:
                pictures.append(picture)
    if not checks:
        checks.append(
            Check("structure", "skipped", "both sides are empty: there is nothing to compare")
        )
    worst = max(pictures, key=lambda pair: pair[0], default=None)
    return Report(title, checks, plot=worst[1].draw if worst else None)


# -- options --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Options:
    rtol: float | None
    atol: float | None
    reduction: int | None
    scale: Any
    dtype_strict: bool
    equal_nan: bool
    signed_zero: bool


def _tolerance(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, (bool, str)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}={value!r}: a number such as 1e-5, or None for the derived limit")
    if not 0 <= float(value) < math.inf:
        raise ValueError(
            f"{name}={value!r}: a tolerance is finite and not negative, such as 1e-5; "
            "None for the derived limit"
        )
    return float(value)


def _reduction(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(
            f"reduction={value!r}: the number of terms summed into one element, an integer such "
            "as in_channels * kernel_height * kernel_width; None to estimate it"
        )
    if value < 1:
        raise ValueError(f"reduction={value!r}: a sum has one term or more; None to estimate it")
    return int(value)


def _scale(value: Any) -> Any:
    try:
        array, dtype = to_numpy(value, "scale")
    except TypeError as error:
        raise TypeError(f"{error}; scale is a number or an array of numbers") from None
    if dtype.startswith("complex") or not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError(
            "scale: the magnitude of the operands is real, finite and not negative, such as "
            "sum(|a * b|)"
        )
    return array.astype(np.float64)


# -- reading tensors ------------------------------------------------------------------------------


def framework(value: Any) -> str:
    """``"torch"``, ``"mindspore"``, ``"numpy"``, or ``""``, without importing any of them."""
    if isinstance(value, (np.ndarray, np.generic)):
        return "numpy"
    for kind in type(value).__mro__:
        module, name = kind.__module__, kind.__name__
        if (module == "torch" or module.startswith("torch.")) and name == "Tensor":
            return "torch"
        if module.startswith("mindspore.") and name in ("Tensor", "COOTensor", "CSRTensor"):
            return "mindspore"
    return ""


def to_numpy(value: Any, where: str = "value") -> tuple[Any, str]:
    """The values as a NumPy array and the name of the dtype; ``""`` for Python numbers.

    Takes tensors of either framework on any device, NumPy arrays, Python numbers, and lists and
    tuples of numbers. bfloat16 and float8, which NumPy lacks, arrive as float32 under their own
    name. The array may share memory with the tensor.

    Raises ``TypeError`` for everything else, and ``RuntimeError`` where a MindSpore tensor cannot
    be read because an operation before it has failed.

    >>> to_numpy(np.float16([1, 2]))[1], to_numpy(3.0)
    ('float16', (array(3.), ''))
    """
    kind = framework(value)
    if kind == "torch":
        array, dtype = _from_torch(value)
    elif kind == "mindspore":
        array, dtype = _from_mindspore(value, where)
    elif kind == "numpy":
        array = np.asarray(value)
        dtype = array.dtype.name
    elif isinstance(value, _NUMBER) or _is_numbers(value):
        array, dtype = np.asarray(value), ""
    else:
        raise TypeError(_refusal(value, where))
    if dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        array = array.astype(np.float32)
    if dtype in ("longdouble", "float128", "clongdouble", "complex256"):
        array = array.astype(np.complex128 if "c" in dtype else np.float64)
        dtype = array.dtype.name
    if array.dtype.kind not in "biufc":
        what = "integers beyond 64 bits" if kind == "" else f"dtype {array.dtype.name}"
        raise TypeError(
            f"{where} holds {what}; compare takes numbers: convert it with astype first"
        )
    return array, dtype


def _from_torch(value: Any) -> tuple[Any, str]:
    dtype = str(value.dtype).removeprefix("torch.")
    value = value.detach()
    if value.is_quantized:
        value, dtype = value.dequantize(), "float32"
    if str(value.layout) != "torch.strided":
        value = value.to_dense()
    if dtype == "bfloat16" or dtype.startswith("float8"):
        value = value.float()
    return value.cpu().resolve_conj().resolve_neg().numpy(), dtype


def _from_mindspore(value: Any, where: str) -> tuple[Any, str]:
    try:
        if not hasattr(value, "asnumpy"):
            value = value.to_dense()
        return value.asnumpy(), str(value.dtype).lower()
    except RuntimeError as error:
        reason = str(error).strip().splitlines() or ["no reason given"]
        raise RuntimeError(
            f"{where}: the MindSpore tensor cannot be read, since an operation before it failed: "
            f"{reason[0]} Errors arrive late: call mindspore.runtime.launch_blocking() at the "
            "start of the process to see which operation it was"
        ) from error


def _refusal(value: Any, where: str) -> str:
    kind = type(value).__name__
    module = type(value).__module__ or ""
    if isinstance(value, (str, bytes)):
        shown = repr(value if len(value) <= 40 else value[:40])
        return f"{where} is text, {shown}; compare takes tensors, arrays and numbers"
    bases = {f"{base.__module__}.{base.__name__}" for base in type(value).__mro__}
    if "torch.nn.modules.module.Module" in bases or "mindspore.nn.cell.Cell" in bases:
        return (
            f"{where} is a network, {kind}; compare takes what it returns: call it first, as in "
            "compare(ms_net(ms_x), torch_net(torch_x))"
        )
    if callable(value):
        name = getattr(value, "__name__", kind)
        return (
            f"{where} is a function, {name}; compare takes what it returns: call it first, or "
            "probe it with msnb.probe"
        )
    return (
        f"{where} is of type {module}.{kind}; compare takes tensors of torch or MindSpore, NumPy "
        "arrays, Python numbers, and tuples, lists and dicts of them"
    )


def _is_numbers(value: Any) -> bool:
    """Whether this is a list or tuple, possibly nested, of numbers in a rectangle."""
    if type(value) not in (list, tuple) or not value:
        return False
    if all(isinstance(item, _NUMBER) for item in value):
        return True
    if not all(_is_numbers(item) for item in value):
        return False
    return len({np.shape(item) for item in value if _is_even(item)} | {None}) == 2 and all(
        _is_even(item) for item in value
    )


def _is_even(value: Any) -> bool:
    """Whether a nested list of numbers has rows of one length."""
    if all(isinstance(item, _NUMBER) for item in value):
        return True
    return len({len(item) for item in value if isinstance(item, (list, tuple))}) == 1


def _names(actual: Any, expected: Any) -> tuple[str, str]:
    written = {"torch": "PyTorch", "mindspore": "MindSpore", "numpy": "NumPy"}
    pair = (_first_framework(actual), _first_framework(expected))
    if pair[0] != pair[1] and set(pair) <= {"torch", "mindspore"}:
        return written[pair[0]], written[pair[1]]
    return "actual", "expected"


def _first_framework(value: Any) -> str:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(_first_framework, value)), "")
    return framework(value)


# -- structures -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Leaf:
    path: str
    actual: Any
    expected: Any
    reference: Any


def _pairs(
    actual: Any, expected: Any, reference: Any, path: str, names: tuple[str, str]
) -> Iterator[_Leaf | Check]:
    """The pairs of arrays of two structures by path, and a Check for each mismatch."""
    here, there = _kind(actual, f"{names[0]}{path}"), _kind(expected, f"{names[1]}{path}")
    if "numbers" in (here, there):  # a list of numbers: an array, unless the other side is none
        if {here, there} <= {"numbers", "array"}:
            here = there = "array"
        else:
            here, there = ("a sequence" if kind == "numbers" else kind for kind in (here, there))
    identity = f"{path}: structure" if path else "structure"
    if here != there:
        yield Check(
            identity,
            "failed",
            f"{names[0]} returns {_describe(actual, here)}, "
            f"{names[1]} {_describe(expected, there)}",
            remedy=_structure_remedy(here, there, path, names),
        )
    elif here == "None":
        yield Check(identity, "ok", "None on both sides")
    elif here == "array":
        yield _Leaf(path, actual, expected, reference)
    elif here == "a dict":
        for key in expected:
            if key not in actual:
                near = ", ".join(repr(other) for other in actual if other not in expected)
                yield Check(
                    f"{path}[{key!r}]: structure",
                    "failed",
                    f"{names[0]} has no {key!r}" + (f"; it has {near} instead" if near else ""),
                    remedy="rename or return it on both sides",
                )
        for key in actual:
            if key not in expected:
                yield Check(
                    f"{path}[{key!r}]: structure",
                    "failed",
                    f"only {names[0]} has {key!r}",
                    remedy="drop it, or return it on both sides",
                )
        for key in expected:
            if key in actual:
                truth = _inner(reference, key, expected, f"{path}[{key!r}]")
                yield from _pairs(actual[key], expected[key], truth, f"{path}[{key!r}]", names)
    else:
        if len(actual) != len(expected):
            yield Check(
                identity,
                "failed",
                f"{names[0]} has {len(actual)} items, {names[1]} {len(expected)}; "
                f"the first {min(len(actual), len(expected))} are compared",
                remedy="return the same items on both sides, or pick them: compare(a[0], b[0])",
            )
        fields = getattr(expected, "_fields", None)
        if fields != getattr(actual, "_fields", None):
            fields = None
        for index, (one, other) in enumerate(zip(actual, expected, strict=False)):
            deeper = f"{path}.{fields[index]}" if fields else f"{path}[{index}]"
            truth = _inner(reference, index, expected, deeper)
            yield from _pairs(one, other, truth, deeper, names)


def _kind(value: Any, where: str) -> str:
    if value is None:
        return "None"
    if framework(value) or isinstance(value, _NUMBER):
        return "array"
    if isinstance(value, Mapping):
        return "a dict"
    if _is_numbers(value):
        return "numbers"
    if isinstance(value, (list, tuple)):
        return "a sequence"
    raise TypeError(_refusal(value, where))


def _describe(value: Any, kind: str) -> str:
    if kind == "array":
        shape = tuple(getattr(value, "shape", ()))
        return f"one array of shape {shape}"
    if kind == "None":
        return "None"
    word = "dict" if kind == "a dict" else type(value).__name__
    return f"a {word} of {len(value)}"


def _structure_remedy(here: str, there: str, path: str, names: tuple[str, str]) -> str:
    if "None" in (here, there):
        side = names[0] if here == "None" else names[1]
        return (
            f"{side} returned nothing: look for a missing return, a missing gradient (an input "
            "that takes no part, requires_grad=False), or an in-place method that returns None"
        )
    if {here, there} == {"array", "a sequence"}:
        side = names[0] if here == "a sequence" else names[1]
        return f"pick the item of {side} that is meant: {side}{path}[0]"
    if {here, there} == {"array", "a dict"}:
        side = names[0] if here == "a dict" else names[1]
        return f"pick the item of {side} that is meant: {side}{path}['name']"
    return "bring both into one structure, as in dict(zip(names, values))"


def _inner(reference: Any, key: Any, expected: Any, path: str) -> Any:
    if reference is None:
        return None
    try:
        if isinstance(expected, Mapping) != isinstance(reference, Mapping):
            raise TypeError
        return reference[key]
    except (TypeError, KeyError, IndexError):
        raise ValueError(
            f"reference has no {path}: it has the structure of expected, or is None there"
        ) from None


# -- one pair of arrays ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """Where and how far two arrays of one shape differ.

    ``off`` marks the elements that differ beyond the limit, ``nonfinite`` how many of these are
    NaN or Inf on one side only. ``worst`` is the index of the largest difference in units of the
    limit (a finite one, unless only NaN and Inf differ), ``distance``, ``limit`` and ``times``
    belong to it. ``max_abs`` and ``max_rel`` are over finite elements; ``map`` holds each element's
    difference in units of its limit, Inf where only one side is finite, and the plain difference
    where the limit is zero.
    """

    size: int
    off: Any
    count: int
    nonfinite: int
    both_nan: int
    worst: tuple[int, ...]
    distance: float
    limit: float
    times: float
    max_abs: float
    max_rel: float
    map: Any


def difference(
    actual: Any, expected: Any, limit: Any = 0.0, *, equal_nan: bool = True
) -> Difference:
    """How two NumPy arrays of one shape differ, element by element, beyond ``limit``.

    ``limit`` is a number or an array that broadcasts; 0 asks for equality, which for integers is
    exact over their whole range. Infinities agree with their like.

    >>> found = difference(np.array([1.0, np.nan, 3.0]), np.array([1.0, 2.0, 3.5]), 0.1)
    >>> found.count, found.nonfinite, found.worst, found.times
    (2, 1, (2,), 5.0)
    """
    exact = actual.dtype.kind in "biu" and expected.dtype.kind in "biu"
    a, e = _wide(actual), _wide(expected)
    bound = np.asarray(limit, dtype=float)
    if not expected.size:
        none = np.zeros(expected.shape, dtype=bool)
        return Difference(0, none, 0, 0, 0, (), 0.0, 0.0, 0.0, 0.0, 0.0, none)
    with np.errstate(all="ignore"):
        distance = np.asarray(a - e)
        distance = np.abs(distance) if distance.dtype.kind == "c" else np.abs(distance, distance)
        distance = np.asarray(distance)
        if exact:
            unequal = _unequal_integers(actual, expected)
            distance[unequal & (distance == 0)] = 1.0  # equal only in float64
        off = np.asarray(distance > bound)
        nonfinite = both_nan = 0
        special = np.zeros(())
        if not np.isfinite(distance.sum()):
            special = ~np.isfinite(distance)
            nan = np.isnan(a) & np.isnan(e)
            same = (a == e) | nan if equal_nan else a == e
            both_nan = int(np.count_nonzero(nan))
            distance[special] = np.where(same[special], 0.0, np.inf)
            off[special] = ~same[special]
            special &= off
            nonfinite = int(np.count_nonzero(special))
        count = int(np.count_nonzero(off))
        times = distance if not bound.any() else _ratio(distance, bound)
        if nonfinite and nonfinite < count:
            flat = int(np.argmax(np.where(special, -1.0, times)))
        else:
            flat = int(np.argmax(times))
        plain = np.where(special, 0.0, distance) if nonfinite else distance
    worst = tuple(int(i) for i in np.unravel_index(flat, expected.shape))
    at_worst = float(np.broadcast_to(bound, expected.shape)[worst])
    return Difference(
        size=int(expected.size),
        off=off,
        count=count,
        nonfinite=nonfinite,
        both_nan=both_nan,
        worst=worst,
        distance=float(distance[worst]),
        limit=at_worst,
        times=float(distance[worst]) / at_worst if at_worst else math.inf if count else 0.0,
        max_abs=float(plain.max()),
        max_rel=_largest_ratio(plain, e),
        map=times,
    )


def _largest_ratio(distance: Any, expected: Any) -> float:
    """The largest finite ``distance / |expected|``, in pieces that stay in the cache."""
    d, e = distance.ravel(), expected.ravel()
    worst = 0.0
    with np.errstate(all="ignore"):
        for start in range(0, d.size, 65_536):
            ratio = d[start : start + 65_536] / np.abs(e[start : start + 65_536])
            worst = max(worst, float(ratio.max(initial=0.0, where=ratio < np.inf)))
    return worst


def _ratio(distance: Any, bound: Any) -> Any:
    times = np.asarray(distance / bound)
    times[np.isnan(times)] = 0.0  # 0 / 0: nothing allowed, nothing there
    return times


def _wide(array: Any) -> Any:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64, copy=False)


def _unequal_integers(a: Any, e: Any) -> Any:
    """``a != e``, exact also between signed and unsigned 64 bits, which NumPy takes to float64."""
    if np.result_type(a, e).kind != "f":
        return a != e
    signed, unsigned = (a, e) if a.dtype.kind == "i" else (e, a)
    return (signed < 0) | (signed.astype(np.uint64) != unsigned)


def _compare_arrays(
    leaf: _Leaf, options: _Options, names: tuple[str, str]
) -> tuple[list[Check], tuple[float, Picture] | None]:
    prefix = f"{leaf.path}: " if leaf.path else ""
    here, there = names
    a, a_dtype = to_numpy(leaf.actual, f"{here}{leaf.path}")
    e, e_dtype = to_numpy(leaf.expected, f"{there}{leaf.path}")
    truth = _reference(leaf)
    checks = [
        _check_shape(f"{prefix}shape", a, e, truth, names),
        _check_dtype(f"{prefix}dtype", a_dtype, e_dtype, options, names),
    ]
    if a.shape != e.shape:
        checks.append(Check(f"{prefix}values", "skipped", "shapes differ"))
        return checks, None
    dtype = limits.coarser(a_dtype or _own(a, e_dtype), e_dtype or _own(e, a_dtype))
    wide = _wide(a), _wide(e)
    bound, derived, rule, terms = _limit(wide[0], wide[1], dtype, options, prefix)
    found = difference(a, e, bound, equal_nan=options.equal_nan)
    shaped = truth is not None and truth.shape == e.shape
    against: list[Check] = []
    verdict = ""
    sides_ok = (False, False)
    if truth is not None:
        if shaped:
            against, sides_ok, verdict = _against(prefix, (a, e), truth, dtype, options, names)
        else:
            against = [
                Check(
                    f"{prefix}{name} against the reference",
                    "skipped",
                    f"the reference has shape {truth.shape}, both sides {e.shape}",
                )
                for name in names
            ]
    values = _check_values(
        f"{prefix}values", wide, found, derived, rule, terms, a_dtype, names, verdict, sides_ok
    )
    checks.append(values)
    checks += against
    if options.signed_zero and limits.is_float(dtype):
        checks.append(_check_zeros(f"{prefix}signed zero", a, e, names))
    picture = None
    if e.size > 1:
        severity = (0 if values.status == "ok" else 1, found.times)
        weight = severity[0] * 1e300 + min(severity[1], 1e299)
        picture = (weight, Picture(leaf.path, wide[0], wide[1], found, names))
    return checks, picture


def _own(array: Any, other: str) -> str:
    """The dtype a Python number is held to: the other side's if that is floating, else its own."""
    return other if limits.is_float(other) else str(array.dtype.name)


def _reference(leaf: _Leaf) -> Any:
    if leaf.reference is None:
        return None
    where = f"reference{leaf.path}"
    array, dtype = to_numpy(leaf.reference, where)
    if limits.is_float(dtype or "float64") and dtype not in ("", "float64", "complex128"):
        raise ValueError(
            f"{where} is {dtype}, which rounds as much as what it judges: compute it in float64, "
            "as in torch_net.double()(x.double())"
        )
    return array


def _check_shape(identity: str, a: Any, e: Any, truth: Any, names: tuple[str, str]) -> Check:
    if a.shape == e.shape:
        return Check(identity, "ok", str(a.shape))
    here, there = names
    summary = f"{here} {a.shape}, {there} {e.shape}"
    if truth is not None and truth.shape in (a.shape, e.shape):
        summary += f"; the reference has the shape of {here if truth.shape == a.shape else there}"
    return Check(
        identity,
        "failed",
        summary,
        found=_shape_pattern(a.shape, e.shape),
        expected=str(e.shape),
        remedy=_shape_remedy(a.shape, e.shape),
        metrics={"ndim_actual": a.ndim, "ndim_expected": e.ndim},
    )


def _shape_pattern(a: tuple[int, ...], e: tuple[int, ...]) -> str:
    if len(a) == len(e) and sorted(a) == sorted(e):
        return "the same sizes in another order"
    if [size for size in a if size != 1] == [size for size in e if size != 1]:
        return "they differ by axes of size 1 only"
    if math.prod(a) == math.prod(e):
        return "the same number of elements"
    if len(a) == len(e):
        axes = [axis for axis in range(len(a)) if a[axis] != e[axis]]
        return f"axis {', '.join(map(str, axes))} differs"
    return f"{len(a)} axes against {len(e)}"


def _shape_remedy(a: tuple[int, ...], e: tuple[int, ...]) -> str:
    pattern = _shape_pattern(a, e)
    if pattern.startswith("the same sizes"):
        return "likely NHWC against NCHW or a transpose: transpose one side before comparing"
    if pattern.startswith("they differ by axes"):
        return "likely keepdims or squeeze: reshape one side before comparing, if it is meant"
    if pattern.startswith("axis") and len(a) >= 3:
        return (
            "likely padding, stride or ceil_mode: pooling layers of MindSpore have stride 1 and "
            'convolutions pad_mode="same" by default'
        )
    return "nothing is broadcast, since that hides faults: bring both to one shape"


def _check_dtype(identity: str, a: str, e: str, options: _Options, names: tuple[str, str]) -> Check:
    if not a or not e:
        return Check(identity, "skipped", "a Python number has no dtype")
    if a == e:
        return Check(identity, "ok", a)
    summary = f"{names[0]} {a}, {names[1]} {e}"
    if not options.dtype_strict:
        return Check(identity, "skipped", f"not asked for: {summary}")
    if limits.is_float(a) and limits.is_float(e):
        remedy = "likely a cast or a default dtype: set dtype= in the constructor, or astype"
    elif limits.is_float(a) or limits.is_float(e):
        remedy = "likely an integer input, which one side promotes to float: cast the input first"
    else:
        remedy = (
            "likely an index dtype: several ops of MindSpore return int32 where torch returns "
            "int64; cast with astype where it matters, or compare(..., dtype_strict=False)"
        )
    return Check(identity, "failed", summary, expected=e, remedy=remedy)


def _limit(
    a: Any, e: Any, dtype: str, options: _Options, prefix: str
) -> tuple[Any, Any, str, float]:
    """The limit in force, the derived one (for the patterns), in words, and the terms assumed."""
    stated = options.rtol is not None or options.atol is not None
    if limits.is_float(dtype):
        try:
            floor = (
                limits.magnitude(a, e)
                if options.scale is None
                else np.broadcast_to(options.scale, e.shape)
            )
        except ValueError:
            raise ValueError(
                f"{prefix}scale of shape {options.scale.shape} does not broadcast to {e.shape}"
            ) from None
        own, terms = "", options.reduction
        if terms is None:
            terms, own = limits.estimate(dtype, a, e, floor), dtype
        unit = float(limits.limit(dtype, terms, collected=own))
        derived = _finite_size(e)
        np.maximum(derived, floor, out=derived)
        derived *= unit
        derived += _tiny(dtype)
        how = "given" if options.reduction is not None else "estimated"
        level = f"{floor:.3g}" if options.scale is None else "scale"
        rule = (
            f"within {unit:.2e} * max(|expected|, {level}) for {dtype} and {terms} "
            f"term{'s' if terms != 1 else ''} ({how})"
        )
    else:
        derived, rule, terms = np.zeros(()), f"equal, for {dtype}", 0
    if not stated:
        return derived, derived, rule, terms
    rtol, atol = options.rtol or 0.0, options.atol or 0.0
    bound = atol + rtol * _finite_size(e)
    return bound, derived, f"within {atol:g} + {rtol:g} * |expected| (given)", terms


def _finite_size(values: Any) -> Any:
    size = np.asarray(np.abs(values))
    if not math.isfinite(size.sum()):
        size[~np.isfinite(size)] = 0.0
    return size


def _tiny(dtype: str) -> float:
    """What may be lost where numbers too small for the dtype are flushed to zero."""
    if dtype in ("float64", "complex128"):
        return float(np.finfo(np.float64).tiny)
    if dtype in ("float32", "complex64", "bfloat16"):
        return float(np.finfo(np.float32).tiny)
    return 2.0**-24 if dtype == "float16" else 2.0**-9 if dtype == "float8_e4m3fn" else 2.0**-16


def _against(
    prefix: str,
    pair: tuple[Any, Any],
    truth: Any,
    dtype: str,
    options: _Options,
    names: tuple[str, str],
) -> tuple[list[Check], tuple[bool, bool], str]:
    """Each side against the float64 reference, and in words which one is off."""
    checks, results = [], []
    exact = _wide(truth)
    for name, side in zip(names, pair, strict=True):
        bound, _, rule, _ = _limit(_wide(side), exact, dtype, options, prefix)
        found = difference(side, truth, bound, equal_nan=options.equal_nan)
        results.append(found)
        checks.append(
            Check(
                f"{prefix}{name} against the reference",
                "failed" if found.count else "ok",
                _summary(found, _wide(side), exact, (name, "reference")),
                expected=rule if found.count else "",
                remedy=f"{name} is off: this is the side to change or to report"
                if found.count
                else "",
                metrics=_metrics(found),
            )
        )
    off = [bool(found.count) for found in results]
    if all(off):
        verdict = "both are off against the reference"
        closer = min((0, 1), key=lambda index: results[index].times)
        if results[1 - closer].times > 4 * results[closer].times:
            verdict += f", {names[1 - closer]} more so"
    elif any(off):
        verdict = f"{names[off.index(True)]} is off against the reference"
    else:
        verdict = "neither is off against the reference"
    return checks, (not off[0], not off[1]), verdict


def _metrics(found: Difference) -> dict[str, float]:
    return {
        "size": found.size,
        "off": found.count,
        "max_abs": found.max_abs,
        "max_rel": found.max_rel,
        "limit": found.limit,
        "limits": found.times,
        "nonfinite": found.nonfinite,
    }


def _check_values(
    identity: str,
    wide: tuple[Any, Any],
    found: Difference,
    derived: Any,
    rule: str,
    terms: float,
    dtype: str,
    names: tuple[str, str],
    verdict: str,
    sides_ok: tuple[bool, bool],
) -> Check:
    metrics = {**_metrics(found), "reduction": terms}
    if not found.size:
        return Check(identity, "ok", "no elements", metrics=metrics)
    summary = _summary(found, *wide, names)
    if not found.count:
        return Check(identity, "ok", summary, metrics=metrics)
    if all(sides_ok):
        return Check(identity, "ok", f"{summary}; {verdict}", metrics=metrics)
    patterns = find_patterns(*wide, derived, off=found.off, names=names, dtype=dtype)
    return Check(
        identity,
        "failed",
        summary + (f"; {verdict}" if verdict else ""),
        found="; ".join(pattern.text for pattern in patterns),
        expected=rule,
        remedy="\n".join(pattern.remedy for pattern in patterns if pattern.remedy) or _REMEDY_NONE,
        metrics=metrics,
    )


def _summary(found: Difference, a: Any, e: Any, names: tuple[str, str]) -> str:
    if not found.size:
        return "no elements"
    nans = f"; {found.both_nan} NaN on both sides" if found.both_nan else ""
    elements = f"{found.size} element{'s' if found.size != 1 else ''}"
    if not found.count:
        if found.max_abs == 0:
            return f"equal ({elements}){nans}"
        return f"max |difference| {found.max_abs:.2g}, limit {found.limit:.2g} ({elements}){nans}"
    text = f"{found.count} of {elements} {'is' if found.count == 1 else 'are'} off; "
    if found.nonfinite:
        text += f"{found.nonfinite} NaN or Inf on one side only; "
    one, other = a[found.worst], e[found.worst]
    at = f"at {list(found.worst)} " if found.worst else ""
    text += f"worst {at}{names[0]} {_shown(one)}, {names[1]} {_shown(other)}"
    if math.isfinite(found.distance):
        text += f", {found.distance:.3g} apart"
        if found.limit:
            text += f", {found.times:.3g}x the limit of {found.limit:.2g}"
    return text + nans


def _shown(value: Any) -> str:
    if np.iscomplexobj(value):
        return f"{value.real:.7g}{value.imag:+.7g}j"
    value = float(value)
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.7g}"


def _check_zeros(identity: str, a: Any, e: Any, names: tuple[str, str]) -> Check:
    def signs(array: Any) -> list[Any]:
        parts = [array.real, array.imag] if array.dtype.kind == "c" else [array]
        return [np.signbit(part.astype(np.float64)) & (part == 0) for part in parts]

    zero = (a == 0) & (e == 0)
    differ = np.logical_or.reduce(
        [(one ^ other) & zero for one, other in zip(signs(a), signs(e), strict=True)]
    )
    count = int(np.count_nonzero(differ))
    total = int(np.count_nonzero(zero))
    if not count:
        return Check(identity, "ok", f"{total} zeros on both sides, all of one sign each")
    first = np.argwhere(differ)[0].tolist()
    return Check(
        identity,
        "failed",
        f"{count} of {total} zeros differ in sign, the first at {first}",
        remedy="it shows in 1 / x, atan2 and copysign only: compare(..., signed_zero=False)",
        metrics={"off": count, "size": total},
    )

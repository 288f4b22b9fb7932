"""compare(): structure, shape, dtype, values, which side is off, and what it refuses."""

from __future__ import annotations

import doctest
import subprocess
import sys
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

from msnb.parity import arrays, compare, limits, patterns

F32 = np.float32


def rng(seed=0):
    return np.random.default_rng(seed)


def sample(shape=(6, 8), dtype=F32, seed=0):
    return rng(seed).standard_normal(shape).astype(dtype)


def ids(report):
    return [check.id for check in report]


# -- values ---------------------------------------------------------------------------------------


def test_equal_arrays_are_ok_and_the_numbers_are_told():
    a = sample()
    report = compare(a, a.copy())
    assert report.ok
    assert ids(report) == ["shape", "dtype", "values"]
    assert report["values"].summary == "equal (48 elements)"
    assert report["shape"].summary == "(6, 8)"
    assert report["dtype"].summary == "float32"


def test_the_worst_element_and_how_many_are_off():
    e = sample()
    a = e.copy()
    a[3, 7] = e[3, 7] + 3
    a[1, 2] = e[1, 2] + 1
    report = compare(a, e, reduction=1)
    values = report["values"]
    assert report.worst == "failed"
    assert values.metrics["off"] == 2
    assert values.metrics["size"] == 48
    assert values.metrics["max_abs"] == pytest.approx(3, abs=1e-6)
    relative = np.abs(a.astype(float) - e) / np.abs(e.astype(float))
    assert values.metrics["max_rel"] == pytest.approx(relative.max())
    assert "2 of 48 elements are off" in values.summary
    assert f"worst at [3, 7] actual {a[3, 7]:.7g}, expected {e[3, 7]:.7g}" in values.summary
    size = min(np.mean(x.astype(float) ** 4) ** 0.25 for x in (a, e))
    by_hand = 26 * 2**-23 * max(abs(float(e[3, 7])), size)
    assert values.metrics["limit"] == pytest.approx(by_hand)
    assert values.metrics["limits"] == pytest.approx(3 / by_hand, rel=1e-5)
    assert "1 term (given)" in values.expected


def test_just_below_and_just_above_the_limit():
    e = np.ones(100, F32)
    unit = limits.limit("float32", 1)
    assert compare(e.astype(float) + 0.99 * unit, e.astype(float), rtol=unit).ok
    below, above = e.copy(), e.copy()
    below[5] += F32(25 * 2**-23)
    above[5] += F32(28 * 2**-23)
    assert compare(below, e, reduction=1).ok
    assert not compare(above, e, reduction=1).ok


def test_stated_tolerances_replace_the_limit():
    e, a = np.array([100.0, 1.0, 0.0]), np.array([100.9, 1.009, 0.0])
    assert compare(a, e, rtol=0.01).ok
    assert compare(a, e, rtol=0.01)["values"].metrics["limit"] in (1.0, 0.01)
    assert not compare(a, e, rtol=0.008).ok
    assert not compare(a, e, atol=0.5).ok
    assert compare(a, e, atol=1).ok
    assert compare(np.array([1, 2]), np.array([1, 3]), atol=1).ok  # integers as well
    assert not compare(np.array([1, 2]), np.array([1, 4]), atol=1).ok
    exact = compare(np.nextafter(e, 200), e, rtol=0, atol=0)
    assert exact["values"].metrics["off"] == 3
    assert np.isinf(exact["values"].metrics["limits"])


def test_a_nan_does_not_hide_the_other_differences():
    e = sample()
    a = e.copy()
    a[0, 0] = np.nan
    a[2, 3] += 5
    values = compare(a, e)["values"]
    assert values.metrics["off"] == 2
    assert values.metrics["nonfinite"] == 1
    assert "1 NaN or Inf on one side only; worst at [2, 3]" in values.summary
    assert values.metrics["max_abs"] == pytest.approx(5, rel=1e-6)


def test_nan_and_inf():
    e = np.array([1, np.nan, np.inf, -np.inf, 2], F32)
    assert compare(e.copy(), e).ok
    assert "1 NaN on both sides" in compare(e.copy(), e)["values"].summary
    assert not compare(e.copy(), e, equal_nan=False).ok
    for index, value in ((2, -np.inf), (2, 3e38), (0, np.inf), (0, np.nan), (1, np.inf)):
        a = e.copy()
        a[index] = value
        values = compare(a, e)["values"]
        assert (values.status, values.metrics["off"]) == ("failed", 1), (index, value)
        assert f"worst at [{index}]" in values.summary


def test_one_wild_value_does_not_excuse_the_rest():
    e = sample((10, 10))
    a = e.copy()
    a[4, 4] += 1e-3
    for wild in (a, e):
        a2, e2 = a.copy(), e.copy()
        (a2 if wild is a else e2)[0, 0] = 1e30
        assert compare(a2, e2, reduction=1)["values"].metrics["off"] == 2


def test_signed_zero_is_told_when_asked_for():
    a, e = np.array([0.0, -0.0, 1.0], F32), np.array([0.0, 0.0, 1.0], F32)
    assert compare(a, e).ok
    report = compare(a, e, signed_zero=True)
    assert report["signed zero"].status == "failed"
    assert report["signed zero"].summary == "1 of 2 zeros differ in sign, the first at [1]"
    assert compare(e, e, signed_zero=True)["signed zero"].status == "ok"


def test_denormal_numbers_may_be_flushed():
    assert compare(np.zeros(3, F32), np.full(3, 1e-39, F32)).ok
    assert not compare(np.zeros(3, F32), np.full(3, 1e-37, F32)).ok
    assert compare(np.zeros(3, np.float16), np.full(3, 6e-8, np.float16)).ok


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_empty_arrays(shape):
    report = compare(np.zeros(shape, F32), np.zeros(shape, F32))
    assert report["values"].summary == "no elements"
    assert report.ok
    assert not compare(np.zeros(shape, F32), np.zeros((*shape, 0), F32)).ok
    assert not compare(np.zeros(shape, F32), np.zeros(shape, np.float64)).ok


def test_no_dimensions_and_python_numbers():
    assert compare(np.float32(1.5), np.array(1.5, F32)).ok
    report = compare(np.float32(1.5), 1.5)
    assert report["dtype"].status == "skipped"
    assert report.ok
    values = compare(2.5, np.float32(1.5))["values"]
    assert "1 of 1 element is off; worst actual 2.5, expected 1.5" in values.summary
    assert compare(True, True).ok
    assert not compare(True, False).ok
    assert compare(0.1 + 0.2, 0.3).ok
    assert compare(1 + 2j, 1 + 2j).ok
    # a Python number takes the other side's precision, whose rounding it cannot share
    assert compare(np.float32(0.1), 0.1).ok
    assert compare([0.1, 0.2], np.array([0.1, 0.2], F32)).ok
    assert not compare([0.1, 0.3], np.array([0.1, 0.2], F32)).ok


def test_integers_are_exact_over_their_whole_range():
    big = 2**62
    pairs = (
        (np.array([big + 1]), np.array([big])),
        (np.array([2**63 + 1], np.uint64), np.array([2**63], np.uint64)),
        (np.array([200], np.uint8), np.array([201], np.uint8)),
        (np.array([-(2**63)]), np.array([2**63 - 1])),
    )
    for a, e in pairs:
        assert compare(a, a.copy()).ok
        values = compare(a, e)["values"]
        assert values.status == "failed"
        assert values.metrics["max_abs"] >= 1
    signed, unsigned = np.array([-1]), np.array([2**64 - 1], np.uint64)
    assert not compare(signed, unsigned, dtype_strict=False).ok
    assert compare(np.array([big + 1]), np.array([big + 1], np.uint64), dtype_strict=False).ok
    assert not compare(np.array([big + 1]), np.array([big], np.uint64), dtype_strict=False).ok


def test_bool_and_complex():
    mask = rng().random((5, 9)) < 0.5
    assert compare(mask, mask.copy()).ok
    report = compare(~mask, mask)
    assert "opposite" in report["values"].found
    z = (sample() + 1j * sample(seed=1)).astype(np.complex64)
    assert compare(z * F32(1 + 2e-7), z).ok
    turned = compare(z.conj(), z)
    assert turned["values"].status == "failed"
    gone = z.copy()
    gone[1, 1] = complex(np.nan, 1)
    assert compare(gone, z)["values"].metrics["nonfinite"] == 1


def test_half_precision_has_the_limit_of_its_dtype():
    e = sample((40, 40), np.float16)
    assert compare((e * 1.0009).astype(np.float16), e).ok  # one step of float16
    assert not compare((e * 1.03).astype(np.float16), e).ok
    mixed = compare(e.astype(F32), e, dtype_strict=False)
    assert mixed.ok
    assert "float16" in compare(e.astype(F32) * 2, e)["values"].expected


def test_not_contiguous_and_read_only_arrays():
    base = sample((12, 16))
    view = base[::2, ::-2].T
    frozen = np.ascontiguousarray(view)
    frozen.flags.writeable = False
    assert compare(view, frozen).ok
    assert frozen.shape == (8, 6)
    assert not compare(view[::-1], frozen).ok


def test_the_inputs_are_left_alone():
    for dtype in (np.float64, np.float32, np.int64, np.complex128):
        a, e = sample(dtype=F32).astype(dtype), sample(seed=1).astype(dtype)
        before = a.copy(), e.copy()
        compare(a, e, reference=e.astype(np.result_type(dtype, np.float64)))
        np.testing.assert_array_equal(a, before[0])
        np.testing.assert_array_equal(e, before[1])


# -- shape and dtype ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "e", "words"),
    [
        ((2, 3, 4, 4), (2, 4, 4, 3), "another order"),
        ((5, 1), (5,), "size 1"),
        ((), (1,), "size 1"),
        ((6, 4), (3, 8), "same number"),
        ((2, 3, 4, 6), (2, 3, 2, 3), "axis 2, 3 differs"),
        ((2, 3), (2, 3, 4), "2 axes against 3"),
    ],
)
def test_shapes_are_never_broadcast(a, e, words):
    report = compare(np.ones(a, F32), np.ones(e, F32))
    assert report["shape"].status == "failed"
    assert report["shape"].summary == f"actual {a}, expected {e}"
    assert words in report["shape"].found
    assert report["values"].status == "skipped"
    assert report["values"].summary == "shapes differ"
    assert not report.ok


def test_dtypes_are_compared_by_name():
    a = np.arange(6)
    report = compare(a.astype(np.int32), a)
    assert report["dtype"].summary == "actual int32, expected int64"
    assert report["values"].status == "ok"
    assert not report.ok
    assert compare(a.astype(np.int32), a, dtype_strict=False).ok
    assert not compare(a.astype(F32), a).ok
    assert compare(a.astype(F32), a, dtype_strict=False).ok


# -- the reference --------------------------------------------------------------------------------


def test_the_reference_says_which_side_is_off():
    exact = rng().standard_normal((6, 8))
    right, wrong = exact.astype(F32), (exact * 1.01).astype(F32)
    report = compare(wrong, right, reference=exact, names=("MindSpore", "PyTorch"))
    assert "MindSpore is off against the reference" in report["values"].summary
    assert report["MindSpore against the reference"].status == "failed"
    assert report["PyTorch against the reference"].status == "ok"
    report = compare(right, wrong, reference=exact)
    assert "expected is off against the reference" in report["values"].summary
    report = compare(wrong, wrong, reference=exact)
    assert report["values"].status == "ok"
    assert not report.ok  # they agree, and both are wrong
    report = compare(wrong, (exact * 1.5).astype(F32), reference=exact)
    assert "both are off against the reference, expected more so" in report["values"].summary
    assert compare(right, right, reference=exact).ok


def test_two_right_sides_do_not_fail_for_the_distance_between_them():
    exact = np.ones(64)
    unit = limits.limit("float32", 1)
    a, e = (exact * (1 + 0.8 * unit)).astype(F32), (exact * (1 - 0.8 * unit)).astype(F32)
    assert not compare(a, e, reduction=1).ok
    report = compare(a, e, reduction=1, reference=exact)
    assert report.ok
    assert "neither is off" in report["values"].summary


def test_a_reference_has_to_be_better_than_what_it_judges():
    with pytest.raises(ValueError, match=r"reference is float32.*compute it in float64"):
        compare(sample(), sample(), reference=sample())
    assert compare(np.arange(3), np.arange(3), reference=np.arange(3)).ok


def test_the_reference_names_the_right_shape():
    report = compare(np.ones((2, 1), F32), np.ones(2, F32), reference=np.ones(2))
    assert "the reference has the shape of expected" in report["shape"].summary
    report = compare(np.ones(2, F32), np.ones(2, F32), reference=np.ones(3))
    assert report["actual against the reference"].status == "skipped"


def test_a_reference_that_mirrors_the_structure():
    one, two = rng().standard_normal((2, 5, 5))
    pair = {"a": one.astype(F32), "b": (two.astype(F32),)}
    report = compare(pair, pair, reference={"a": one, "b": (two * 1.1,)})
    assert report["['a']: actual against the reference"].status == "ok"
    assert report["['b'][0]: actual against the reference"].status == "failed"
    with pytest.raises(ValueError, match=r"reference has no \['b'\]\[0\]"):
        compare(pair, pair, reference={"a": one, "b": ()})
    with pytest.raises(ValueError, match=r"reference has no \['a'\]"):
        compare(pair, pair, reference=one)


# -- structures -----------------------------------------------------------------------------------

State = namedtuple("State", "h c")


def test_structures_by_path():
    x, y = sample(), sample(seed=1)
    e = {"out": x, "state": State(x, y), "extra": [None, 3]}
    a = OrderedDict(out=x.copy(), state=State(x, y + 1), extra=(None, 3))
    report = compare(a, e)
    assert [check.id for check in report if check.status == "failed"] == ["['state'].c: values"]
    assert "plus 1" in report["['state'].c: values"].found
    assert report["['extra'][0]: structure"].summary == "None on both sides"
    assert compare((x, (x, y)), [x, State(x, y)]).ok  # a tuple, a list: a sequence is meant


@pytest.mark.parametrize(
    ("a", "e", "where", "words"),
    [
        ([np.ones(2)], [np.ones(2), np.ones(3)], "structure", "actual has 1 items, expected 2"),
        ({"x": 1}, {"y": 1}, "['y']: structure", "actual has no 'y'; it has 'x' instead"),
        ({"x": 1, "y": 2}, {"y": 2}, "['x']: structure", "only actual has 'x'"),
        (None, np.ones(2), "structure", "actual returns None, expected one array of shape (2,)"),
        ((np.ones(2), None), (np.ones(2), np.ones(3)), "[1]: structure", "actual returns None"),
        ((np.ones(2),), np.ones(2), "structure", "actual returns a tuple of 1, expected one array"),
        ({"x": np.ones(2)}, [np.ones(2)], "structure", "a dict of 1, expected a list of 1"),
    ],
)
def test_mismatched_structures_are_named(a, e, where, words):
    report = compare(a, e)
    assert report[where].status == "failed"
    assert words in report[where].summary
    assert report[where].remedy
    assert not report.ok


def test_what_can_be_compared_is_compared_despite_a_mismatch():
    x = sample()
    report = compare([x + 1, x], [x])
    assert report["[0]: values"].status == "failed"
    assert report["structure"].status == "failed"


def test_nothing_at_all_is_not_ok():
    for nothing in ([], {}, ()):
        assert not compare(nothing, nothing).ok
    assert compare(None, None).ok


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "words"),
    [
        ("text", r"actual is text, 'text'; compare takes tensors"),
        (b"text", "actual is text"),
        (np.sin, r"actual is a function, sin; .* call it first, or probe it"),
        (lambda x: x, "actual is a function, <lambda>"),
        (np.array([None, 1]), "actual holds dtype object"),
        (np.array(["a"]), "actual holds dtype str"),
        ({1, 2}, "actual is of type builtins.set"),
        (object(), "actual is of type builtins.object"),
        ([np.ones(2), "x"], r"actual\[1\] is text"),
        (np.array(["2020-01-01"], "datetime64[D]"), "datetime64"),
        (2**80, "beyond 64 bits"),
    ],
)
def test_what_is_no_array_is_refused_in_a_sentence(a, words):
    e = [np.ones(2), 1] if isinstance(a, list) else np.ones(2)
    with pytest.raises(TypeError, match=words):
        compare(a, e)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"rtol": "a"}, TypeError, "rtol='a': a number such as 1e-5"),
        ({"atol": True}, TypeError, "atol=True"),
        ({"rtol": -1e-3}, ValueError, r"rtol=-0.001: a tolerance is finite and not negative"),
        ({"atol": float("nan")}, ValueError, "atol=nan"),
        ({"atol": float("inf")}, ValueError, "atol=inf"),
        ({"reduction": 0}, ValueError, "reduction=0: a sum has one term or more"),
        ({"reduction": 2.5}, TypeError, "reduction=2.5: the number of terms"),
        ({"scale": -1.0}, ValueError, "scale: the magnitude of the operands is real"),
        ({"scale": "big"}, TypeError, "scale is text"),
        ({"scale": np.ones(7)}, ValueError, r"scale of shape \(7,\) does not broadcast"),
    ],
)
def test_options_that_make_no_sense(options, error, words):
    with pytest.raises(error, match=words):
        compare(np.ones(2, F32), np.ones(2, F32), **options)


# -- both frameworks ------------------------------------------------------------------------------


def test_tensors_of_both_frameworks():
    torch = pytest.importorskip("torch")
    ms = pytest.importorskip("mindspore")
    x = sample()
    t, m = torch.from_numpy(x.copy()), ms.Tensor(x)
    report = compare(m, t)
    assert report.ok
    assert report["dtype"].summary == "float32"
    off = compare(m * 2, t)
    assert "MindSpore is 2 times PyTorch" in off["values"].found
    assert compare(t.requires_grad_(), m).ok
    assert compare(ms.Parameter(ms.Tensor(x), name="p"), torch.nn.Parameter(t)).ok
    assert compare(m.T, t.T).ok  # not contiguous
    assert compare(t, x).ok
    assert compare(m, x).ok

    # bfloat16, which NumPy lacks: one step is fine, a tenth is not
    bt, bm = t.bfloat16(), m.astype(ms.bfloat16)
    report = compare(bm, bt)
    assert report.ok
    assert report["dtype"].summary == "bfloat16"
    assert compare(bm, (t * 1.004).bfloat16()).ok
    # float32 says 10 % is wrong, and so does bfloat16 where no rounding accounts for it
    assert not compare(bm, (t * 1.1).bfloat16()).ok
    assert not compare(bm, t).ok
    assert "MindSpore bfloat16, PyTorch float32" in compare(bm, t)["dtype"].summary

    for dtype in ("int32", "int64", "bool", "float16", "float64", "uint8", "complex64"):
        right = torch.ones(2, 3, dtype=getattr(torch, dtype))
        ours = ms.Tensor(np.ones((2, 3)), getattr(ms, dtype))
        report = compare(ours, right)
        assert report.ok, report
        assert report["dtype"].summary == dtype
    z = torch.view_as_complex(torch.randn(4, 2))
    assert compare(z.conj(), z.conj().resolve_conj()).ok
    sparse = torch.eye(3).to_sparse()
    assert compare(sparse, torch.eye(3)).ok
    assert compare(ms.Tensor(3.0), torch.tensor(3.0)).ok
    assert compare(ms.Tensor(np.zeros((0, 3), F32)), torch.zeros(0, 3)).ok
    assert not compare(ms.Tensor([1.0]), torch.tensor(1.0)).ok

    with pytest.raises(TypeError, match=r"expected is a network, Linear; .* call it first"):
        compare(m, torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"actual is a network, Dense"):
        compare(ms.nn.Dense(2, 2), t)


def test_no_framework_is_imported_for_numpy():
    code = (
        "import sys, numpy as np, msnb.parity.arrays as p; p.compare(np.ones(3), np.zeros(3)); "
        "print([m for m in ('torch', 'mindspore', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_error_that_arrives_late_is_explained():
    class Tensor:
        __module__ = "mindspore.common.tensor"
        dtype, shape = "Float32", (2,)

        def asnumpy(self):
            raise RuntimeError("The kernel Log10 unregistered.\n\n- C++ Call Stack")

    with pytest.raises(RuntimeError, match=r"cannot be read.*Log10 unregistered.*launch_blocking"):
        compare(Tensor(), np.ones(2))


# -- the picture ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "panels"),
    [((30,), 2), ((9, 12), 5), ((3, 9, 12), 5), ((2, 20, 9, 12), 5), ((2, 2, 2, 5, 5), 5)],
)
def test_a_picture_for_each_shape(shape, panels, tmp_path):
    e = sample(shape)
    a = e.copy()
    a[..., -1] += 1
    a.flat[0] = np.nan
    figure = compare(a, e).plot()
    assert len(figure.axes) == panels
    figure.savefig(tmp_path / "difference.png")
    compare({"x": e, "y": a}, {"x": e, "y": e}).plot()


def test_a_single_element_stays_visible_in_a_huge_array():
    e = sample((1500, 2100))
    a = e.copy()
    a[701, 1303] += 1
    report = compare(a, e, title="huge")
    picture = report._plot.__self__
    assert max(picture.times.shape) <= 512
    assert np.count_nonzero(picture.times > 1) == 1


def test_nothing_to_draw_for_a_single_number():
    with pytest.raises(ValueError, match="nothing to draw"):
        compare(1.0, 2.0).plot()


@pytest.mark.parametrize("module", [arrays, limits, patterns])
def test_the_docstrings_run(module):
    assert doctest.testmod(module).failed == 0

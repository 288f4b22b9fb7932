from __future__ import annotations

from pathlib import Path

import pytest

from msnb.regression import shares
from msnb.regression.catalog import Refused
from msnb.regression.planning import Limits


@pytest.mark.parametrize(
    ("visible", "found"),
    [("0,2-4", (0, 2, 3, 4)), (" 3 , 1,3", (3, 1)), ("", ()), ("7", (7,))],
)
def test_visible_devices(visible: str, found: tuple[int, ...]) -> None:
    assert shares.devices({shares.VISIBLE: visible}) == found


@pytest.mark.parametrize("visible", ["a", "0;1", "-1", "1-", "0x1"])
def test_visible_devices_that_are_none(visible: str) -> None:
    with pytest.raises(ValueError, match="numbers and ranges such as 0,2-3, not"):
        shares.devices({shares.VISIBLE: visible})


def test_devices_by_their_nodes(tmp_path: Path) -> None:
    for name in ("davinci10", "davinci2", "davinci_manager", "null", "davinci"):
        (tmp_path / name).touch()
    assert shares.devices({}, tmp_path) == (2, 10)
    assert shares.devices({}, tmp_path / "none") == ()


def test_the_largest_that_fits_need_not_wait_and_too_large_gets_all() -> None:
    assert shares.place([1, 1], [5, 3], 2) == (0, (5,))
    assert shares.place([2, 1], [3], 2) == (1, (3,))
    assert shares.place([2, 2], [3], 2) is None
    assert shares.place([8], [0, 1], 2) == (0, (0, 1))
    assert shares.place([8], [0], 2) is None
    assert shares.place([], [0], 1) is None


def test_what_a_notebook_needs() -> None:
    wanted = {"world_size": 4}, {}, {"world_size": 0}, {"world_size": "2"}, {"world_size": True}
    assert [shares.needed(parameters) for parameters in wanted] == [4, 1, 1, 1, 1]


@pytest.mark.parametrize(("jobs", "cores", "each"), [(1, 8, 8), (2, 8, 4), (3, 8, 2), (4, 2, 1)])
def test_threads(jobs: int, cores: int, each: int) -> None:
    assert shares.threads(jobs, cores) == each


@pytest.mark.parametrize("memory", [0, -1, float("nan"), float("inf"), 0.01])
def test_a_memory_limit_that_is_none(memory: float) -> None:
    with pytest.raises(Refused, match=r"memory limit is 0\.1 GB or more, and finite, not"):
        Limits(memory=memory)

"""How a device target is spelt, wherever one is asked for."""

from __future__ import annotations

import pytest

from msnb.targets import canonical_target


def test_any_case() -> None:
    asked = ("cpu", "ASCEND", "Gpu", "Auto", " ascend ")
    assert [canonical_target(word) for word in asked] == ["CPU", "Ascend", "GPU", "auto", "Ascend"]


@pytest.mark.parametrize(
    ("asked", "near"),
    [("npu", "Ascend"), ("CUDA", "GPU"), ("Ascent", "Ascend"), ("cup", "CPU"), ("quantum", "")],
)
def test_another_word_is_refused_with_the_nearest_target(asked: str, near: str) -> None:
    with pytest.raises(ValueError, match="device_target is one of CPU, Asc") as no:
        canonical_target(asked)
    assert str(no.value).endswith(f"not {asked!r}; did you mean {near}?" if near else f"{asked!r}")


@pytest.mark.parametrize("asked", [3, None, b"CPU", ["CPU"]])
def test_what_is_no_text_is_refused(asked: object) -> None:
    with pytest.raises(TypeError, match="device_target is one of CPU, Ascend, GPU, auto, not "):
        canonical_target(asked)

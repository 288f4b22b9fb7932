from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Place
from tiny_notebooks import REQUIRE, write_notebook


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with two sound notebooks in ``notebooks/``."""
    write_notebook(tmp_path / "notebooks" / "01_first.ipynb", REQUIRE)
    write_notebook(
        tmp_path / "notebooks" / "02_second.ipynb",
        REQUIRE,
        parameters='device_target: str = "CPU"\nrate: float = 0.5\nshapes: list[int] = [1, 2]',
    )
    return tmp_path


@pytest.fixture
def place(folder: Path) -> Iterator[Place]:
    """The same, with the promise that whatever runs there leaves nothing behind."""
    made = Place(folder)
    yield made
    made.check()

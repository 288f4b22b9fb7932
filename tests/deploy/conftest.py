"""One exported file for all tests that only read it; each gets a copy of its own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from nets_to_export import Small, images

from msnb.deploy import export


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Small, Path]:
    """(net, folder): ``fixed.mindir`` for 4 rows, ``any.mindir`` for any number."""
    folder = tmp_path_factory.mktemp("exported files 导出")
    net = Small()
    net.set_train()
    export(net, images(), folder / "fixed").require()
    export(net, images(), folder / "any", dynamic={0: "batch"}).require()
    return net, folder


@pytest.fixture
def files(exported: tuple[Small, Path], tmp_path: Path) -> Path:
    """A folder with copies of both files and their manifests."""
    for file in exported[1].iterdir():
        shutil.copy(file, tmp_path / file.name)
    return tmp_path


@pytest.fixture
def net(exported: tuple[Small, Path]) -> Any:
    return exported[0]

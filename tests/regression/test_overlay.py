"""Another version of MindSpore over the environment, with tiny wheels in the place of real ones."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from running import Place

from msnb.regression import overlay
from msnb.regression.catalog import Refused

INSTALLED = overlay.installed()


def wheel(folder: Path, version: str, *requires: str) -> None:
    """A wheel called mindspore whose module says its version."""
    info = f"mindspore-{version}.dist-info"
    files = {
        "mindspore/__init__.py": f"__version__ = {version!r}\n",
        f"{info}/METADATA": "\n".join(
            ["Metadata-Version: 2.1", "Name: mindspore", f"Version: {version}"]
            + [f"Requires-Dist: {text}" for text in requires]
        )
        + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(folder / f"mindspore-{version}-py3-none-any.whl", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
            digest = hashlib.sha256(text.encode()).digest()
            code = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            record += f"{name},sha256={code},{len(text)}\n"
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all pip can see, and a cache of our own with a hostile name."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(folder, "2.8.0", "numpy>=1.20")
    wheel(folder, "2.9.0", "numpy>=99", "no-such-thing>=1", "other>=1; extra == 'x'")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("MSNB_CACHE", str(tmp_path / "缓存 'of mine'"))
    return folder


def test_it_replaces_mindspore_and_nothing_else(shelf: Path) -> None:
    found = overlay.get("2.8.0")
    assert found.version == "2.8.0"
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import importlib.metadata as m, json, mindspore, numpy\n"
            "print(json.dumps([mindspore.__version__, m.version('mindspore'), numpy.__file__]))",
        ],
        env=found.environment(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    module, metadata, numpy = json.loads(said.stdout)
    assert (module, metadata) == ("2.8.0", "2.8.0")
    assert "site-packages" in numpy


def test_it_is_built_once_and_again_where_it_was_not_whole(
    shelf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = overlay.get("2.8.0").folder
    assert folder is not None
    assert "fetching it" in capsys.readouterr().err
    (shelf / "mindspore-2.8.0-py3-none-any.whl").rename(shelf / "away")
    assert overlay.get("2.8").folder is not None  # the same version: no pip
    assert capsys.readouterr().err == ""
    (folder / "complete").unlink()
    (shelf / "away").rename(shelf / "mindspore-2.8.0-py3-none-any.whl")
    (folder / "mindspore" / "__init__.py").unlink()
    overlay.get("2.8.0")
    assert (folder / "mindspore" / "__init__.py").exists()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_what_a_killed_build_left_goes_after_a_while(shelf: Path) -> None:
    folder = overlay.get("2.8.0").folder
    assert folder is not None
    old, new = (folder.parent / f".{folder.name}-{name}" for name in ("old", "new"))
    for left in (old, new):
        left.mkdir()
    os.utime(old, (0, 0))
    (folder / "complete").unlink()
    overlay.get("2.8.0")
    assert (old.exists(), new.exists()) == (False, True)


def test_the_installed_version_needs_no_overlay(shelf: Path) -> None:
    found = overlay.get(INSTALLED)
    assert found == overlay.Overlay(INSTALLED, None)
    assert found.environment({"PATH": "/bin"}) == {"PATH": "/bin"}


def test_what_was_on_the_path_stays_behind_it(tmp_path: Path) -> None:
    env = overlay.Overlay("2.8.0", tmp_path).environment({"PYTHONPATH": "/a", "PATH": "/b"})
    assert env == {"PYTHONPATH": f"{tmp_path}:/a", "PATH": f"{tmp_path / 'bin'}:/b"}
    assert overlay.Overlay("2.8.0", tmp_path).environment({})["PYTHONPATH"] == str(tmp_path)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("latest", "--mindspore latest: that is no version; 2.7.2, say, or"),
        ("", "--mindspore : that is no version"),
        ("1.10.1", "--mindspore 1.10.1: msnb supports MindSpore 2.7.2 and later"),
        ("2.8.7", "--mindspore 2.8.7: pip finds no such version; it knows 2.8.0, 2.9.0"),
        (
            "2.9.0",
            "--mindspore 2.9.0: this environment does not meet what it requires: numpy>=99, but "
            "numpy is 1.",
        ),
        ("2.9.0", "no-such-thing>=1, which is not installed. Use an environment of its own"),
    ],
)
def test_what_cannot_be_is_refused_by_name(version: str, said: str, shelf: Path) -> None:
    with pytest.raises(Refused) as refused:
        overlay.get(version)
    assert said in str(refused.value)
    assert "extra" not in str(refused.value)


def test_a_run_is_in_that_version_and_says_so(shelf: Path, place: Place) -> None:
    (place.root / "typer.py").write_text("raise SystemExit('a file of the user\\'s')")
    ran = place.run("--mindspore", "2.8.0", "--jobs=1", "01")
    assert ran.code == 0, ran.stderr
    assert ran.results is not None
    assert ran.results.environment["versions"]["mindspore"] == "2.8.0"
    seen = place.run("01", "--mindspore=2.8.0", out="again")
    assert seen.results is not None
    assert seen.results.environment["versions"]["mindspore"] == "2.8.0"
    refused = place.run("--mindspore", "latest", out="none")
    assert refused.code == 2
    assert "--mindspore latest: that is no version" in refused.stderr
    assert "nothing was run" in refused.stderr


def test_a_notebook_for_a_newer_version_is_skipped_by_name(shelf: Path, place: Place) -> None:
    path = place.root / "notebooks" / "02_second.ipynb"
    document = json.loads(path.read_text())
    document["metadata"]["msnb"] = {"mindspore": "2.9"}
    path.write_text(json.dumps(document))
    older = place.run("--mindspore", "2.8.0", "--jobs", "1")
    assert older.code == 0, older.stdout
    assert older["01_first"].verdict == "ok"
    assert older["02_second"].verdict == "skipped"
    assert older["02_second"].reason == "needs MindSpore 2.9 or later, this is 2.8.0"
    alone = place.run("02", "--mindspore", "2.8.0", out="alone")
    assert alone.code == 1  # nothing was shown to be well
    newer = place.run("--jobs", "1", out="newer")
    assert newer["02_second"].verdict == "ok"
    document["metadata"]["msnb"] = {"mindspore": "soon"}
    path.write_text(json.dumps(document))
    assert "Invalid version: 'soon'" in place.run(out="bad").stderr


def test_a_cache_that_cannot_be_written_is_named(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MSNB_CACHE", str(tmp_path / "file"))
    with pytest.raises(Refused, match=r"file: .*; MSNB_CACHE names another folder$"):
        overlay.get("2.8.0")


def test_a_disk_that_gets_full_is_named(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/cache/file")

    monkeypatch.setattr(overlay.subprocess, "run", full)
    with pytest.raises(Refused, match=r"2\.8\.0: /cache/file: No space left on device; MSNB_CACHE"):
        overlay.get("2.8.0")
    assert list(overlay.cache().iterdir()) == []

"""`import msnb` stays light, and its public face is complete, documented and forgiving."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys

import pytest

import msnb

HEAVY = ("mindspore", "torch", "numpy", "matplotlib", "sklearn", "papermill", "typer")
MODULES = ("report", "log")  # whose import alone must stay light; parts with NumPy are not here


def loaded_by(code: str) -> set[str]:
    """Which of the heavy packages a fresh interpreter has loaded after ``code``."""
    listing = f"import sys\n{code}\nprint([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return set(ast.literal_eval(result.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    ["import msnb", "import msnb; msnb.Check; msnb.Report; msnb.TrainLog; dir(msnb)"]
    + [f"import msnb.{module}" for module in MODULES],
)
def test_import_stays_out_of_the_frameworks(code):
    assert loaded_by(code) == set()


def test_the_test_above_can_fail():
    assert loaded_by("import msnb, numpy") == {"numpy"}
    assert "mindspore" in loaded_by("import types; sys.modules['mindspore'] = types; import msnb")


def test_every_module_stays_out_of_both_frameworks():
    # but for the topics of the recorded differences: they are loaded only to be executed
    found = loaded_by(
        "import importlib, pkgutil, msnb\n"
        "for module in pkgutil.walk_packages(msnb.__path__, 'msnb.'):\n"
        "    if not module.name.endswith('__main__'):\n"
        "        if not module.name.startswith('msnb.differences.'):\n"
        "            importlib.import_module(module.name)\n"
        "import msnb.differences; msnb.differences.topics(); msnb.differences.count()"
    )
    assert not found & {"mindspore", "torch"}


@pytest.mark.parametrize("name", msnb.__all__)
def test_every_public_name_is_there(name):
    value = getattr(msnb, name)
    assert getattr(msnb, name) is value
    assert inspect.ismodule(value) == (name in ("data", "nets"))  # no module hides a function


@pytest.mark.parametrize("name", msnb.__all__)
def test_every_public_name_has_a_docstring_with_an_example(name):
    assert has_example(getattr(msnb, name)), f"msnb.{name}: a docstring with an example"


def has_example(thing: object) -> bool:
    text = thing.__doc__ or ""
    return ">>>" in text or "```" in text or re.search(r"::\n\n +\S", text) is not None


def test_a_missing_example_is_noticed():
    def bare() -> None:
        """Does something, for example nothing."""

    assert not has_example(bare)
    assert not has_example(lambda: None)


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("Trainlog", "TrainLog"), ("set_up", "setup"), ("docter", "doctor"), ("Chek", "Check")],
)
def test_a_typo_names_the_nearest(typo, meant):
    with pytest.raises(AttributeError, match=rf"no '{typo}'; did you mean msnb\.{meant}\?"):
        getattr(msnb, typo)


def test_a_name_like_nothing_lists_what_there_is():
    with pytest.raises(AttributeError, match=r"no 'xyzzy'; it has Check, Report, StepGuard"):
        msnb.xyzzy  # noqa: B018
    assert not hasattr(msnb, "__wrapped__")


def test_dir_shows_the_public_face():
    assert set(msnb.__all__) < set(dir(msnb))

"""A failing cell is followed by its hint: in IPython, and in a kernel through msnb.setup()."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from msnb.hints import cells

FAILING = "raise ValueError('The amp level O4 is not supported')"
HINT = "hint: there is no level O4; they are O0, O1, O2, O3 and auto."

# one interpreter for all: IPython's shell is one a process
SCRIPT = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="NoColor")
from msnb.hints.cells import follow
from msnb.report import Check, Report

def cell(name, code):
    print(f"--- {name}")
    shell.run_cell(code)

FAILING = "raise ValueError('The amp level O4 is not supported')"
cell("before", FAILING)
assert follow(True) is True
cell("on", FAILING)
follow(True)
cell("on twice", FAILING)
cell("well", "1 + 1")
cell("unknown", "raise ValueError('The amp is warm')")
cell("of msnb's own", '''
from msnb.report import Check, Report
Report("r", [Check("c", "failed", "The amp level O4 is not supported")]).require()
''')
cell("interrupt", "raise KeyboardInterrupt('The amp level O4 is not supported')")
cell("wrapped", '''
try:
    raise ValueError('The amp level O4 is not supported')
except ValueError as error:
    raise RuntimeError('job 7') from error
''')
from msnb.hints import cells
kept, cells.best = cells.best, lambda error: 1 / 0
cell("broken", FAILING)
cells.best = kept
assert follow(False) is False
cell("off", FAILING)
follow(False)
cell("end", "")
"""


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What each cell of SCRIPT printed."""
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    parts = run.stdout.split("--- ")[1:]
    return dict(part.split("\n", 1) for part in parts)


def test_a_failing_cell_is_followed_by_its_hint(said: dict[str, str]) -> None:
    assert said["on"].count(HINT) == 1
    assert said["on twice"].count(HINT) == 1
    assert said["wrapped"].count(HINT) == 1
    assert said["on"].index("ValueError: The amp level") < said["on"].index("hint:")


def test_the_traceback_is_unchanged(said: dict[str, str]) -> None:
    without = said["before"]
    assert "hint" not in without
    assert said["on"].startswith(without.rstrip())
    assert said["off"] == without


@pytest.mark.parametrize("cell", ["well", "unknown", "of msnb's own", "interrupt", "broken", "off"])
def test_otherwise_nothing_is_said(said: dict[str, str], cell: str) -> None:
    assert "hint" not in said[cell]
    assert "Error in callback" not in said[cell]


def test_outside_of_ipython_there_is_nothing_to_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython.core.getipython", raising=False)
    assert cells.follow(True) is False


@pytest.mark.slow
def test_in_a_kernel_through_setup(tmp_path: Path) -> None:
    sources = [
        "import msnb\nmsnb.setup();",
        "import mindspore as ms\nms.Tensor([1.0]).backward()",
        "from msnb import setup\nsetup(hints=False);",
        "ms.Tensor([1.0]).backward()",
        "setup(hints='no')",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources])
    client = nbclient.NotebookClient(
        notebook,
        kernel_name="msnb",
        timeout=120,
        allow_errors=True,
        resources={"metadata": {"path": tmp_path}},
    )
    client.execute()
    outputs: list[list[Any]] = [cell.outputs for cell in notebook.cells]
    assert [output.output_type for output in outputs[0]] == []
    assert [output.output_type for output in outputs[1]] == ["error", "display_data"]
    assert [output.output_type for output in outputs[3]] == ["error"]
    assert outputs[1][0].traceback[-1] == outputs[3][0].traceback[-1]
    shown = outputs[1][1].data
    assert shown["text/plain"].startswith("hint: gradients do not live on tensors here")
    assert "ms.value_and_grad(forward" in shown["text/html"]
    assert set(shown) == {"text/plain", "text/html"}  # no Report: a hint is no finding
    assert "hints is True or False, not 'no'" in outputs[4][0].evalue

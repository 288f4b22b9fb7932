from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner, Result

from msnb import __version__, cli

PARAMETERS = 'device_target: str = "CPU"\nepochs: int = 3'


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.make_app(), list(arguments))


def notebook(path: Path, parameters: tuple[str, ...] = (PARAMETERS,), kernel: str = "msnb") -> Path:
    spec = {"name": kernel, "display_name": kernel}
    written = nbformat.v4.new_notebook(metadata={"kernelspec": spec})
    for source in parameters:
        cell = nbformat.v4.new_code_cell(source, metadata={"tags": ["parameters"]})
        written.cells.append(cell)
    path.parent.mkdir(exist_ok=True)
    nbformat.write(written, path)
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with one notebook ``notebooks/01_first.ipynb``."""
    notebook(tmp_path / "notebooks" / "01_first.ipynb")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["7"], "no notebook '7'; there are 01_first"),
        (["01_frist"], "no notebook '01_frist'; there are 01_first"),
        (["-p", "epoch=3"], "no parameter 'epoch' in 01_first; there are epochs, device_target"),
        (["-p", "epochs=two"], "01_first: parameter epochs is an int"),
        (["-p", "epochs"], "given as name=value, not 'epochs'"),
        (["--device-target", "Ascent"], "not 'Ascent'; did you mean Ascend?"),
        (["-p", "device_target=tpu"], "device_target is one of CPU, Ascend, GPU, auto, not 'tpu'"),
        (
            ["--device-target", "CPU", "-p", "device_target=CPU"],
            "--device-target CPU and -p device_target=CPU both name the device",
        ),
        (["--cell-timeout", "0"], "the cell time limit is 1 second or more, and finite, not 0"),
        (["--timeout", "inf"], "the total time limit is 1 second or more, and finite, not inf"),
        (["-p", "device_target"], "given as name=value, not 'device_target'"),
        (["--out", "notebooks"], "--out notebooks is not empty"),
        (["--out", "notebooks/01_first.ipynb"], "is a file"),
        (["--out", "/proc/nowhere"], "the results cannot be written: "),
    ],
)
def test_run_refuses_before_anything_runs(here: Path, arguments: list[str], sentence: str) -> None:
    result = invoke("run", *arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stderr.endswith("nothing was run\n")
    assert not (here / "runs").exists()


def test_run_refuses_bad_notebooks_all_at_once(here: Path) -> None:
    notebook(here / "notebooks" / "02_none.ipynb", ())
    notebook(here / "notebooks" / "03_two.ipynb", (PARAMETERS, PARAMETERS))
    notebook(here / "notebooks" / "04_kernel.ipynb", kernel="missing-kernel")
    (here / "notebooks" / "05_json.ipynb").write_text("{")
    result = invoke("run")
    assert result.exit_code == 2
    assert not (here / "runs").exists()
    lines = result.stderr.splitlines()
    assert lines[0].startswith("02_none.ipynb: no cells tagged parameters")
    assert lines[1].startswith("03_two.ipynb: 2 cells tagged parameters")
    assert lines[2].startswith("no kernel called 'missing-kernel' is registered")
    assert lines[3].startswith("05_json.ipynb: not a notebook")
    assert lines[4:] == ["nothing was run"]


def test_unknown_options_and_verbs_are_usage_errors(here: Path) -> None:
    assert invoke("run", "--jobs", "0").exit_code == 2
    assert invoke("run", "--epochs", "3").exit_code == 2
    assert invoke("rum").exit_code == 2


@pytest.mark.parametrize("verb", [["-m", "msnb.cli", "run", "1"], ["-m", "msnb.environment"]])
def test_a_working_folder_that_is_gone(tmp_path: Path, verb: list[str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    shell = 'rmdir "$PWD" && exec "$@"'
    command = ["sh", "-c", shell, "sh", sys.executable, *verb]
    found = subprocess.run(command, cwd=gone, capture_output=True, text=True, timeout=60)
    assert found.returncode == 2
    assert found.stderr.endswith("the working folder is gone: change into another one\n")
    assert "Traceback" not in found.stderr


def test_a_path_that_the_encoding_lacks(tmp_path: Path) -> None:
    folder = tmp_path / "笔记"
    folder.mkdir()
    found = subprocess.run(
        [sys.executable, "-m", "msnb.cli", "run", "./没有.ipynb"],
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode == 2
    assert found.stderr == "no notebook ./\\u6ca1\\u6709.ipynb\nnothing was run\n"


def test_version() -> None:
    assert invoke("--version").stdout == f"msnb {__version__}\n"


def test_every_verb_says_what_it_does() -> None:
    listed = invoke("--help").stdout
    commands = cli.make_app().registered_commands
    assert {command.callback.__name__ for command in commands if command.callback} >= {
        "doctor",
        "run",
    }
    for command in commands:
        assert command.callback is not None
        summary = (command.callback.__doc__ or "").split(".")[0]
        assert summary
        assert summary in listed


def child(*arguments: str, prelude: str = "") -> subprocess.CompletedProcess[str]:
    program = f"{prelude}\nimport sys\nsys.argv[1:] = {list(arguments)!r}\n"
    program += "from msnb.cli import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )


WITHOUT_TYPER = "import sys\nsys.modules['typer'] = None\nsys.modules['rich'] = None"


def test_the_doctor_works_where_typer_does_not() -> None:
    found = child("doctor", "--help", prelude=WITHOUT_TYPER)
    assert found.returncode == 0, found.stderr
    assert "Is this environment fit?" in found.stdout
    other = child("run", prelude=WITHOUT_TYPER)
    assert other.returncode == 2
    assert other.stderr.startswith("msnb cannot start: ")
    assert other.stderr.endswith("Type: msnb doctor\n")
    assert "Traceback" not in other.stderr


def test_the_doctor_gets_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    from msnb.environment import __main__ as doctor

    seen: list[list[str]] = []

    def record(arguments: list[str]) -> int:
        seen.append(arguments)
        return 1

    monkeypatch.setattr(doctor, "main", record)
    assert invoke("doctor").exit_code == 1
    assert invoke("doctor", "--device-target", "Ascend", "--json", "--fix").exit_code == 1
    assert seen == [
        [],
        ["--device-target", "Ascend", "--json", "--fix"],
    ]


def test_help_is_quick_and_imports_little() -> None:
    """Under 200 ms on an idle machine: the best of several, with room for a busy one."""
    heavy = ("mindspore", "torch", "numpy", "papermill", "nbformat", "jupyter_client", "rich")
    say = f"print([name for name in {heavy!r} if name in sys.modules])"
    watch = f"import atexit, sys\natexit.register(lambda: {say})"
    assert child("--help", prelude=watch).stdout.splitlines()[-1] == "[]"
    assert child("--help", prelude="import json, numpy\n" + watch).stdout.endswith("['numpy']\n")
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        child("--help")
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.4


@pytest.mark.slow
def test_the_command_itself_runs_a_notebook_from_anywhere(here: Path) -> None:
    path = notebook(here / "elsewhere" / "mine.ipynb")
    written = nbformat.read(path, as_version=4)
    source = (
        "from msnb.report import Check, Report\n"
        'Report("mine", [Check("device", "ok", found=device_target)]).require()'
    )
    written.cells.append(nbformat.v4.new_code_cell(source))
    nbformat.write(written, path)
    command = Path(sys.executable).with_name("msnb")
    ran = subprocess.run(
        [str(command), "run", "elsewhere/mine.ipynb"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("msnb run on CPU: ok (1 ok)\n")
    (folder,) = (here / "runs").iterdir()
    assert str(folder) in ran.stdout
    assert json.loads((folder / "results.json").read_text())["ok"] is True

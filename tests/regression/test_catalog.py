from __future__ import annotations

import ast
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_notebooks import REQUIRE, write_notebook

from msnb.regression import catalog
from msnb.regression.catalog import Parameter, Refused


@pytest.fixture
def eight(tmp_path: Path) -> Path:
    """A folder with notebooks 01, 02, 05, 06, 10; their content does not matter."""
    for name in ("01_env_check", "02_lenet_port", "05_cells", "06_amp", "10_export"):
        write_notebook(tmp_path / "notebooks" / f"{name}.ipynb")
    write_notebook(tmp_path / "notebooks" / "draft.ipynb")
    return tmp_path


def names(paths: list[Path]) -> list[str]:
    return [path.stem for path in paths]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([], ["01_env_check", "02_lenet_port", "05_cells", "06_amp", "10_export"]),
        (["2"], ["02_lenet_port"]),
        (["02"], ["02_lenet_port"]),
        (["05-10"], ["05_cells", "06_amp", "10_export"]),
        (["6-7", "1"], ["06_amp", "01_env_check"]),
        (["10_export", "10_export.ipynb", "10"], ["10_export"]),
        (["notebooks/draft.ipynb"], ["draft"]),
        (["notebooks/draft"], ["draft"]),
    ],
)
def test_notebooks_are_named_by_number_range_name_or_path(
    eight: Path, wanted: list[str], found: list[str]
) -> None:
    assert names(catalog.select(wanted, eight)) == found


def test_the_folder_is_found_from_below_and_from_inside(eight: Path) -> None:
    (eight / "a" / "b").mkdir(parents=True)
    assert catalog.find_folder(eight / "a" / "b") == eight / "notebooks"
    assert catalog.find_folder(eight / "notebooks") == eight / "notebooks"


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("3", "no notebook '3'; there are 01_env_check, "),
        ("7-9", "no notebook '7-9'; there are "),
        ("notebooks", "notebooks is a folder; name the notebooks in it: notebooks/*.ipynb"),
        ("./notebooks/", "./notebooks/ is a folder; name the notebooks in it: ./notebooks/*.ipynb"),
        ("02_lenet_prot", "no notebook '02_lenet_prot'; there are 02_lenet_port, "),
        ("notebooks/drafd.ipynb", "no notebook notebooks/drafd.ipynb; beside it: draft, "),
    ],
)
def test_an_unknown_notebook_is_refused_with_the_valid_ones_nearest_first(
    eight: Path, word: str, sentence: str
) -> None:
    with pytest.raises(Refused) as refusal:
        catalog.select([word], eight)
    assert sentence in str(refusal.value)


def test_without_a_folder_the_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "__file__", str(tmp_path / "site" / "msnb" / "x" / "y.py"))
    with pytest.raises(Refused, match="change into the repository, or name notebooks by path"):
        catalog.find_folder(tmp_path)


def test_what_is_read(tmp_path: Path) -> None:
    path = write_notebook(
        tmp_path / "n.ipynb",
        "",
        "# a comment\n\nx = 1",
        "# only a comment",
        parameters='device_target: str = "CPU"\nrate = -0.5  # rate\nsizes: list[int] = [1]',
    )
    notebook = catalog.read(path)
    assert [(cell.number, cell.line) for cell in notebook.cells] == [
        (1, 'device_target: str = "CPU"'),
        (2, "x = 1"),
        (3, "# only a comment"),
    ]
    assert notebook.kernel == "msnb"
    assert {p.name: (p.type, p.default) for p in notebook.parameters.values()} == {
        "device_target": ("str", "CPU"),
        "rate": ("float", -0.5),
        "sizes": ("list[int]", [1]),
    }


def edited(path: Path, **changes: Any) -> Path:
    document = json.loads(path.read_text())
    document.update(changes)
    path.write_text(json.dumps(document))
    return path


def test_what_cannot_be_run_is_refused_with_one_sentence(tmp_path: Path) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(Refused) as refusal:
            catalog.read(path)
        message = str(refusal.value)
        assert message.startswith(f"{path.name}: ")
        assert "\n" not in message
        return message

    path = tmp_path / "n.ipynb"
    path.write_text('{"cells": [')
    assert "not a notebook (JSON as Jupyter writes it): Expecting value" in refused(path)
    path.write_text("[]")
    assert "not a notebook" in refused(path)
    assert "No such file" in refused(tmp_path / "missing.ipynb")
    assert "no cells tagged parameters, one is needed" in refused(
        write_notebook(path, parameters=None)
    )
    assert "does not set device_target" in refused(write_notebook(path, parameters="epochs = 3"))
    assert "holds only literals (name: type = value), not steps = 10 * 2" in refused(
        write_notebook(path, parameters='device_target = "CPU"\nsteps = 10 * 2')
    )
    assert "not Python" in refused(write_notebook(path, parameters="device_target = "))
    assert "names no kernel: choose the kernel msnb" in refused(write_notebook(path, kernel=None))
    assert "notebook format 4.9; this environment runs 4.0 to 4.5" in refused(
        edited(write_notebook(path), nbformat_minor=9)
    )
    assert "notebook format 5.0" in refused(
        edited(write_notebook(path), nbformat=5, nbformat_minor=0)
    )
    for metadata in ([], {"kernelspec": None}, {"kernelspec": {"name": 3}}):
        assert "not a notebook" in refused(edited(write_notebook(path), metadata=metadata))
    cells = json.loads(write_notebook(path).read_text())["cells"]
    assert "2 cells tagged parameters" in refused(
        edited(path, cells=[*cells, {**cells[1], "id": "other"}])
    )
    assert "several cells have the id c1" in refused(edited(path, cells=[*cells, cells[1]]))
    stale = {**cells[1], "id": "other", "metadata": {"tags": ["injected-parameters"]}}
    assert "delete that cell" in refused(edited(path, cells=[*cells, stale]))


@pytest.mark.parametrize(
    ("annotation", "default", "text", "value"),
    [
        ("int", 3, "5", 5),
        ("", 3, "-5", -5),
        ("float", 0.1, "1", 1.0),
        ("float", 1, "1e-3", 1e-3),
        ("bool", True, "false", False),
        ("str", "a", "3", "3"),
        ("str", "a", "量 \"'", "量 \"'"),
        ("str | None", None, "x", "x"),
        ("int | None", 3, "None", None),
        ("Optional[int]", None, "4", 4),
        ("'int'", 3, "4", 4),
        ('Literal["sgd", "adam"]', "sgd", "adam", "adam"),
        ("list[int]", [], "[1, 2]", [1, 2]),
        ("list[float]", [], "[1, 2.5]", [1.0, 2.5]),
        ("dict[str, bool]", {}, '{"a": true}', {"a": True}),
        ("", [1], "['x']", ["x"]),
    ],
)
def test_a_value_gets_the_type_of_the_parameter(
    annotation: str, default: Any, text: str, value: Any
) -> None:
    parsed = Parameter("p", annotation, default).parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("annotation", "default", "text"),
    [
        ("int", 3, "1.5"),
        ("int", 3, "many"),
        ("float", 0.1, "nan"),
        ("bool", True, "1"),
        ("int | None", 3, "x"),
        ('Literal["sgd", "adam"]', "sgd", "adamw"),
        ("list[int]", [], "[1, 'x']"),
        ("list[int]", [], "3"),
        ("list[int]", [], "__import__('os')"),
        ("dict[str, int]", {}, "{1: 1}"),
        ("tuple", (), "(1, 2)"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(annotation: str, default: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r"parameter p is an? .*, not ") as refusal:
        Parameter("p", annotation, default).parse(text)
    assert repr(text) in str(refusal.value)
    assert (annotation or type(default).__name__) in str(refusal.value)


def test_parameters_reach_the_notebooks_that_have_them(folder: Path) -> None:
    notebooks = [catalog.read(path) for path in catalog.select([], folder)]
    assert catalog.assign(notebooks, ["epochs=5"]) == [{"epochs": 5}, {}]
    for assignments, sentence in [
        (["epoch=5"], "no parameter 'epoch' in 01_first, 02_second; there are epochs, "),
        (["epochs=x"], "01_first: parameter epochs is an int (the notebook has epochs = 3)"),
        (["epochs"], "a parameter is given as name=value, not 'epochs'"),
        (["epochs=1", "epochs=2"], "parameter epochs is given twice: '1' and '2'"),
    ]:
        with pytest.raises(Refused) as refusal:
            catalog.assign(notebooks, assignments)
        assert sentence in str(refusal.value)


def test_a_seed_that_no_generator_takes_is_refused(folder: Path) -> None:
    parameters = 'device_target: str = "CPU"\nseed: int = 0'
    path = write_notebook(folder / "notebooks" / "03_seed.ipynb", parameters=parameters)
    notebook = catalog.read(path)
    assert catalog.assign([notebook], ["seed=4294967295"]) == [{"seed": 4294967295}]
    for text in ("-1", "4294967296"):
        with pytest.raises(Refused, match=f"whole number from 0 to 4294967295, not {text}"):
            catalog.assign([notebook], [f"seed={text}"])
    parameters = 'device_target: str = "CPU"\nseed: int | None = 0'
    notebook = catalog.read(write_notebook(path, parameters=parameters))
    assert catalog.assign([notebook], ["seed=None"]) == [{"seed": None}]


def kernelspec(folder: Path, name: str, *argv: str) -> None:
    spec = folder / "kernels" / name
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": name, "language": "python"})
    )


def test_the_kernel_is_there_and_of_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    kernelspec(tmp_path, "good", sys.executable, "-m", "ipykernel_launcher")
    kernelspec(tmp_path, "bare", "python", "-m", "ipykernel_launcher")
    kernelspec(tmp_path, "other", "/usr/bin/python3", "-m", "ipykernel_launcher")
    gone = os.path.join(os.path.dirname(sys.executable), "python0")
    kernelspec(tmp_path, "gone", gone, "-m", "ipykernel_launcher")
    catalog.check_kernel("good")
    catalog.check_kernel("bare")
    with pytest.raises(Refused, match=r"no kernel called 'absent' is registered.*doctor --fix"):
        catalog.check_kernel("absent")
    with pytest.raises(Refused, match="'other' starts /usr/bin/python3, which is not this env"):
        catalog.check_kernel("other")
    with pytest.raises(Refused, match="which does not exist"):
        catalog.check_kernel("gone")


def test_values_come_through_papermills_translation() -> None:
    """What is typed is what the injected cell assigns: the translation is papermill's."""
    from papermill.translators import translate_parameters

    values = {
        "a": 'it\'s "quoted" \\ 量\n',
        "b": 1e-30,
        "c": [1, 2.5, None, True, {"k": ["x"]}],
        "d": False,
        "e": -3,
    }
    source = translate_parameters("msnb", "python", values, "Parameters")
    assigned = {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }
    assert assigned == values


def test_the_sample_notebook_is_sound(tmp_path: Path) -> None:
    catalog.read(write_notebook(tmp_path / "n.ipynb", REQUIRE))

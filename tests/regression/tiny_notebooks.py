"""Small real notebooks, written by the tests."""

from __future__ import annotations

from pathlib import Path

import nbformat

PARAMETERS = 'device_target: str = "CPU"\nepochs: int = 3'
REQUIRE = """\
from msnb.report import Check, Report
Report("summary", [
    Check("sum", "ok", "2 + 2 = 4"),
    Check("device", "ok", found="CPU", expected=device_target),
]).require()"""


def write_notebook(
    path: Path,
    *cells: str,
    parameters: str | None = PARAMETERS,
    kernel: str | None = "msnb",
) -> Path:
    """A notebook of code ``cells`` after a title and the ``parameters`` cell."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells.append(nbformat.v4.new_markdown_cell(f"# {path.stem}"))
    if parameters is not None:
        cell = nbformat.v4.new_code_cell(parameters)
        cell.metadata["tags"] = ["parameters"]
        notebook.cells.append(cell)
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in cells]
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"c{number}"
    if kernel is not None:
        notebook.metadata["kernelspec"] = {
            "name": kernel,
            "display_name": kernel,
            "language": "python",
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path

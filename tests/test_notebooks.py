"""The contract of the notebooks, clause by clause; each clause is also shown to fail."""

from __future__ import annotations

import ast
import copy
import importlib.util
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MIME = "application/vnd.msnb.report+json"

_spec = importlib.util.spec_from_file_location(
    "rewrite_notebooks", ROOT / "tools" / "rewrite_notebooks.py"
)
assert _spec is not None
assert _spec.loader is not None
rewrite = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(rewrite)

Clause = Callable[[str, Any], Iterator[str]]
CLAUSES: dict[str, Clause] = {}


def clause(function: Clause) -> Clause:
    CLAUSES[function.__name__] = function
    return function


# --- helpers -------------------------------------------------------------------------------------


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def tags(cell: Any) -> list[str]:
    return list(cell.metadata.get("tags", []))


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def prose(notebook: Any) -> str:
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def headings(notebook: Any, level: int) -> list[str]:
    text = re.sub(r"```.*?```", "", prose(notebook), flags=re.DOTALL)
    return re.findall(rf"^{'#' * level} (.+)$", text, flags=re.MULTILINE)


def sections(notebook: Any) -> dict[str, list[Any]]:
    """The cells below each ``##``."""
    found: dict[str, list[Any]] = {"": []}
    for cell in notebook.cells:
        title = re.match(r"## (.+)", cell.source) if cell.cell_type == "markdown" else None
        if title:
            found[title[1]] = []
        found[list(found)[-1]].append(cell)
    return found


def parse(cell: Any) -> ast.Module:
    try:
        return ast.parse(cell.source)
    except SyntaxError:
        return ast.parse("")


def called(cell: Any) -> set[str]:
    """Dotted names of what the cell calls."""
    return {ast.unparse(node.func) for node in ast.walk(parse(cell)) if isinstance(node, ast.Call)}


def strings(cell: Any) -> list[str]:
    return [
        node.value
        for node in ast.walk(parse(cell))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def streams(cell: Any, name: str = "stdout") -> str:
    return "".join(
        out.text for out in cell.outputs if out.output_type == "stream" and out.name == name
    )


def reports(cell: Any) -> list[Any]:
    return [out.data[MIME] for out in cell.outputs if MIME in out.get("data", {})]


# --- the clauses ---------------------------------------------------------------------------------


@clause
def title(name: str, notebook: Any) -> Iterator[str]:
    first = notebook.cells[0]
    if first.cell_type != "markdown" or not first.source.startswith(f"# {name[:2]} · "):
        yield f"the first cell starts with '# {name[:2]} · Title'"
    for label in ("**Goal.**", "**Before you start:**", "**Twin in PyTorch:**"):
        if label not in first.source:
            yield f"the first cell has no {label}"
    if not re.search(r"\*\*Time:\*\*.*minute.*CPU", first.source):
        yield "the first cell gives no minutes on CPU after **Time:**"


@clause
def outline(name: str, notebook: Any) -> Iterator[str]:
    if (count := len(headings(notebook, 1))) != 1:
        yield f"one heading with #, not {count}"
    if not 3 <= (count := len(headings(notebook, 2))) <= 6:
        yield f"three to six headings with ##, not {count}"


@clause
def parameters(name: str, notebook: Any) -> Iterator[str]:
    cells = [cell for cell in notebook.cells if "parameters" in tags(cell)]
    if len(cells) != 1:
        yield f"one cell is tagged parameters, not {len(cells)}"
        return
    if cells[0] is not code(notebook)[0]:
        yield "the parameters are the first code cell"
    for statement, line in zip(parse(cells[0]).body, cells[0].source.splitlines(), strict=False):
        typed = isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
        try:
            ast.literal_eval(statement.value)  # type: ignore[attr-defined]
        except (ValueError, AttributeError, TypeError):
            typed = False
        if not typed or "  # " not in line:
            yield f"a parameter is 'name: type = literal  # comment', not {line!r}"
    if 'device_target: str = "CPU"' not in cells[0].source:
        yield 'device_target: str = "CPU" is a parameter'


@clause
def setup(name: str, notebook: Any) -> Iterator[str]:
    second = code(notebook)[1]
    calls = [node for node in ast.walk(parse(second)) if isinstance(node, ast.Call)]
    if not any(
        ast.unparse(call.func) == "msnb.setup"
        and call.args
        and ast.unparse(call.args[0]) == "device_target"
        for call in calls
    ):
        yield "after the parameters comes msnb.setup(device_target, ...)"


@clause
def both_frameworks(name: str, notebook: Any) -> Iterator[str]:
    used = {
        node.value.id
        for cell in code(notebook)
        for node in ast.walk(parse(cell))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    for framework, alias in (("PyTorch", "torch"), ("MindSpore", "ms")):
        if alias not in used:
            yield f"{framework} ({alias}.) is not used in the notebook itself"


@clause
def prose_before_code(name: str, notebook: Any) -> Iterator[str]:
    for before, cell in zip(notebook.cells, notebook.cells[1:], strict=False):
        answer_and_check = "exercise" in tags(before)
        if before.cell_type == cell.cell_type == "code" and not answer_and_check:
            yield f"no prose before the code cell {cell.id!r}"


@clause
def short_cells(name: str, notebook: Any) -> Iterator[str]:
    lengths = {cell.id: len(cell.source.splitlines()) for cell in code(notebook)}
    for cell_id, length in lengths.items():
        if length > 30:
            yield f"cell {cell_id!r} has {length} lines, more than 30"
    if not 3 <= (median := statistics.median(lengths.values())) <= 8:
        yield f"the median cell has 3 to 8 lines, not {median}"


NETWORK = {"urllib", "requests", "socket", "http", "ftplib", "aiohttp", "httpx"}
SHELL = {"os.system", "os.popen", "get_ipython", "subprocess.run", "subprocess.Popen"}


@clause
def plain_python(name: str, notebook: Any) -> Iterator[str]:
    for cell in code(notebook):
        for line in cell.source.splitlines():
            if re.match(r"\s*[%!]|\w+\s*=\s*[%!]|[\w.]+\?+$", line):
                yield f"cell {cell.id!r} has a magic or a shell escape: {line.strip()!r}"
        for call in called(cell) & SHELL:
            yield f"cell {cell.id!r} calls {call}"
        for node in ast.walk(parse(cell)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in names:
                if module.split(".")[0] in NETWORK:
                    yield f"cell {cell.id!r} imports {module}: no network"
            if isinstance(node, ast.keyword) and node.arg == "download":
                yield f"cell {cell.id!r} downloads"
        for text in strings(cell):
            if re.search(r"(?<![\w.:/<>~])/(home|root|work|tmp|mnt|data|Users)/|[A-Z]:\\", text):
                yield f"cell {cell.id!r} has an absolute path: {text[:60]!r}"


@clause
def asserted(name: str, notebook: Any) -> Iterator[str]:
    for heading, cells in sections(notebook).items():
        if not heading or heading.startswith(("Exercise", "On Ascend")):
            continue
        if not any(isinstance(n, ast.Assert) for c in cells for n in ast.walk(parse(c))):
            yield f"nothing is asserted below '## {heading}'"


@clause
def figure(name: str, notebook: Any) -> Iterator[str]:
    kinds = {
        kind for cell in code(notebook) for out in cell.outputs for kind in out.get("data", {})
    }
    if "image/png" not in kinds:
        yield "no figure among the outputs"


@clause
def checked_table(name: str, notebook: Any) -> Iterator[str]:
    cells = [cell for cell in code(notebook) if "nbval-check-output" in tags(cell)]
    if not cells:
        yield "no cell is tagged nbval-check-output"
    for cell in cells:
        table = streams(cell)
        if len(table.splitlines()) < 3 or any("data" in out for out in cell.outputs):
            yield f"the checked output of {cell.id!r} is a plain-text table"
        if re.search(r"\d ?(s|ms|seconds?|minutes?)\b", table):
            yield f"the checked output of {cell.id!r} holds a time"


@clause
def exercises(name: str, notebook: Any) -> Iterator[str]:
    stubs = [at for at, cell in enumerate(notebook.cells) if "exercise" in tags(cell)]
    if len(stubs) not in (1, 2, 3):
        yield f"one to three cells are tagged exercise, not {len(stubs)}"
    kept = ROOT / "notebooks" / "solutions" / f"{name}.py"
    solutions = kept.read_text("utf-8") if kept.exists() else ""
    if not solutions:
        yield f"no notebooks/solutions/{name}.py"
    for at in stubs:
        stub, check, folded = (notebook.cells[at + step] for step in (0, 1, 2))
        if check.cell_type != "code" or "not answered yet" not in streams(check):
            yield f"the cell after {stub.id!r} does not say 'not answered yet'"
        summaries = re.findall(r"<details><summary>(.+?)</summary>", folded.source)
        if summaries != ["Hint 1", "Hint 2", "Solution"]:
            yield f"after {stub.id!r} are folded Hint 1, Hint 2, Solution; not {summaries}"
        blocks = re.findall(r"```python\n(.*?)\n```", folded.source, flags=re.DOTALL)
        if not blocks or blocks[-1] not in solutions:
            yield f"the solution of {stub.id!r} is not the one in notebooks/solutions/"


@clause
def on_ascend(name: str, notebook: Any) -> Iterator[str]:
    if "On Ascend" not in headings(notebook, 2):
        yield "no heading '## On Ascend'"
    text = prose(notebook).partition("## On Ascend")[2]
    for label in ("**What changes:**", "**What was verified there:**"):
        if label not in text:
            yield f"On Ascend has no {label}"


@clause
def verdict(name: str, notebook: Any) -> Iterator[str]:
    last = notebook.cells[-1]
    if last.cell_type != "code":
        yield "the last cell is code: the verdict"
        return
    calls = called(last)
    if "context.check" not in calls:
        yield "the last cell does not call context.check()"
    if not any(call.endswith(".require") for call in calls):
        yield "the last cell requires no Report"
    required = [report for report in reports(last) if report.get("required")]
    if not any(
        report["ok"] and any(check["id"] == "device" for check in report["checks"])
        for report in required
    ):
        yield "the last output is not a required Report that is ok and has the check 'device'"


@clause
def committed_outputs(name: str, notebook: Any) -> Iterator[str]:
    try:
        rewrite.refuse_unfit(notebook)
    except rewrite.Refused as error:
        yield str(error)


@clause
def committed_form(name: str, notebook: Any) -> Iterator[str]:
    if notebook.metadata.get("kernelspec", {}).get("name") != "msnb":
        yield "the kernelspec is not msnb"
    if (notebook.nbformat, notebook.nbformat_minor) != (4, 5):
        yield f"nbformat 4.5, not {notebook.nbformat}.{notebook.nbformat_minor}"
    ids = [cell.id for cell in notebook.cells]
    if len(set(ids)) != len(ids):
        yield "two cells have the same id"
    for cell in notebook.cells:
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", cell.id) or re.fullmatch(
            r"[0-9a-f]{8}", cell.id
        ):
            yield f"the id {cell.id!r} is not a readable name"
        if extra := set(cell.metadata) - {"tags"}:
            yield f"cell {cell.id!r} carries metadata {sorted(extra)}"


# --- every notebook keeps every clause -----------------------------------------------------------


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("name", CLAUSES)
def test_contract(name: str, path: Path) -> None:
    problems = list(CLAUSES[name](path.stem, read(path)))
    assert not problems, "\n".join(problems)


def test_there_are_notebooks_and_each_has_a_number_of_its_own() -> None:
    numbers = [path.stem[:2] for path in NOTEBOOKS]
    assert len(numbers) >= 2
    assert all(re.fullmatch(r"\d\d_[a-z0-9_]+", path.stem) for path in NOTEBOOKS)
    assert len(set(numbers)) == len(numbers)


# --- every clause can fail -----------------------------------------------------------------------


def cell_of(notebook: Any, cell_id: str) -> Any:
    return next(cell for cell in notebook.cells if cell.id == cell_id)


def replaced(cell_id: str, old: str, new: str) -> Callable[[Any], None]:
    def change(notebook: Any) -> None:
        cell = cell_of(notebook, cell_id)
        assert old in cell.source
        cell.source = cell.source.replace(old, new)

    return change


def appended(cell_id: str, line: str) -> Callable[[Any], None]:
    def change(notebook: Any) -> None:
        cell_of(notebook, cell_id).source += f"\n{line}"

    return change


def without(cell_id: str) -> Callable[[Any], None]:
    def change(notebook: Any) -> None:
        notebook.cells.remove(cell_of(notebook, cell_id))

    return change


def untagged(cell_id: str) -> Callable[[Any], None]:
    def change(notebook: Any) -> None:
        cell_of(notebook, cell_id).metadata = nbformat.from_dict({})

    return change


def printed(cell_id: str, text: str, name: str = "stdout") -> Callable[[Any], None]:
    def change(notebook: Any) -> None:
        cell_of(notebook, cell_id).outputs.append(
            nbformat.v4.new_output("stream", name=name, text=text)
        )

    return change


def no_pictures(notebook: Any) -> None:
    for cell in code(notebook):
        cell.outputs = [out for out in cell.outputs if "image/png" not in out.get("data", {})]


def no_exercise(notebook: Any) -> None:
    untagged("exercise-1")(notebook)
    untagged("exercise-2")(notebook)


def no_asserts(notebook: Any) -> None:
    for cell in code(notebook):
        cell.source = re.sub(r"^(\s*)assert .*", r"\1pass", cell.source, flags=re.MULTILINE)


def all_long(notebook: Any) -> None:
    for cell in code(notebook):
        cell.source += "\npass" * 9


def not_required(notebook: Any) -> None:
    for out in notebook.cells[-1].outputs:
        out.data[MIME]["required"] = False


def counted_twice(notebook: Any) -> None:
    code(notebook)[3].execution_count = 3


def timed(notebook: Any) -> None:
    cell_of(notebook, "summary").metadata["execution"] = {"iopub.status.busy": "now"}


def random_id(notebook: Any) -> None:
    notebook.cells[4].id = "6fc82098"


def same_id(notebook: Any) -> None:
    notebook.cells[4].id = notebook.cells[5].id


def other_kernel(notebook: Any) -> None:
    notebook.metadata.kernelspec.name = "python3"


def older_format(notebook: Any) -> None:
    notebook.nbformat_minor = 4


def raised(notebook: Any) -> None:
    notebook.cells[-1].outputs.append(
        nbformat.v4.new_output("error", ename="ValueError", evalue="wrong", traceback=[])
    )


SUBJECT = "02_lenet_port"
BROKEN: list[tuple[str, Callable[[Any], None], str]] = [
    ("title", replaced("title", "# 02 ·", "# 2 ·"), "starts with"),
    ("title", replaced("title", "**Goal.**", "Goal."), "no **Goal.**"),
    ("title", replaced("title", "on a CPU", ""), "no minutes"),
    ("title", replaced("title", "**Twin in PyTorch:**", "Twin"), "Twin in PyTorch"),
    ("outline", replaced("weights", "## ", "# "), "one heading with #, not 2"),
    ("outline", appended("weights", "\n## One\n\n## Two"), "three to six"),
    ("parameters", untagged("parameters"), "not 0"),
    ("parameters", replaced("parameters", "seed: int = 0", "seed = 0"), "name: type"),
    ("parameters", replaced("parameters", "int = 0", "int = 1 + len('x')"), "name: type"),
    ("parameters", replaced("parameters", "  # of the", "\n# of the"), "name: type"),
    ("parameters", replaced("parameters", '"CPU"  #', '"Ascend"  #'), "device_target"),
    ("setup", replaced("setup", "(device_target", '("CPU"'), "msnb.setup(device_target"),
    ("setup", without("setup"), "msnb.setup(device_target"),
    ("both_frameworks", lambda nb: hide(nb, "torch."), "PyTorch"),
    ("both_frameworks", lambda nb: hide(nb, "ms."), "MindSpore"),
    ("prose_before_code", without("record-note"), "record"),
    ("short_cells", appended("summary", "pass\n" * 30), "more than 30"),
    ("short_cells", all_long, "median"),
    ("plain_python", appended("batch", "%timeit x"), "magic"),
    ("plain_python", appended("batch", "!ls"), "shell escape"),
    ("plain_python", appended("batch", "import os; os.system('ls')"), "os.system"),
    ("plain_python", appended("batch", "import urllib.request"), "no network"),
    ("plain_python", appended("batch", "from requests import get"), "no network"),
    ("plain_python", appended("batch", "f(download=True)"), "downloads"),
    ("plain_python", appended("batch", "open('/home/me/x.npy')"), "absolute path"),
    ("asserted", no_asserts, "nothing is asserted below '## Two nets"),
    ("figure", no_pictures, "no figure"),
    ("checked_table", untagged("names"), "no cell is tagged"),
    ("checked_table", printed("names", "took 3 ms\n"), "holds a time"),
    ("exercises", no_exercise, "not 0"),
    ("exercises", without("exercise-1-feedback"), "does not say 'not answered yet'"),
    ("exercises", replaced("exercise-1-hints", "Hint 2", "Hint"), "Hint 1, Hint 2, Solution"),
    ("exercises", replaced("exercise-1-hints", "momentum=0.8", "momentum=0.2"), "not the one"),
    ("on_ascend", replaced("ascend", "## On Ascend", "## On a device"), "no heading"),
    ("on_ascend", replaced("ascend", "**What was verified there:**", ""), "verified"),
    ("verdict", replaced("summary", "context.check(),", ""), "context.check()"),
    ("verdict", replaced("summary", "summary.require()", "summary"), "requires no Report"),
    ("verdict", not_required, "not a required Report"),
    ("committed_outputs", counted_twice, "count 3, not 4"),
    ("committed_outputs", printed("summary", "beware", "stderr"), "stderr"),
    ("committed_outputs", printed("summary", f"at {ROOT}/msnb"), "the path"),
    ("committed_outputs", printed("summary", "<object at 0x7f87092b3ba0>"), "differs in each run"),
    ("committed_outputs", raised, "ValueError: wrong"),
    ("committed_form", timed, "carries metadata"),
    ("committed_form", random_id, "not a readable name"),
    ("committed_form", same_id, "same id"),
    ("committed_form", other_kernel, "not msnb"),
    ("committed_form", older_format, "4.5, not 4.4"),
]


def hide(notebook: Any, prefix: str) -> None:
    for cell in code(notebook):
        cell.source = re.sub(rf"\b{re.escape(prefix)}", "other.", cell.source)


@pytest.mark.parametrize(
    ("name", "change", "words"), BROKEN, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(BROKEN)]
)
def test_each_clause_finds_what_breaks_it(
    name: str, change: Callable[[Any], None], words: str
) -> None:
    notebook = copy.deepcopy(read(ROOT / "notebooks" / f"{SUBJECT}.ipynb"))
    change(notebook)
    problems = list(CLAUSES[name](SUBJECT, notebook))
    assert any(words in problem for problem in problems), problems


def test_each_clause_has_a_notebook_that_breaks_it() -> None:
    assert {name for name, *_ in BROKEN} == set(CLAUSES)


# --- one-line mutations --------------------------------------------------------------------------

# notebook: (a line of one cell, what it becomes, what the failure says)
MUTATIONS: dict[str, list[tuple[str, str, str]]] = {
    "01_env_check": [
        ("(ms.Tensor([1.0, 2.0]) + 1)", "(ms.Tensor([1.0, 2.0]) + 2)", "ours == theirs"),
        ("returned = ms.run_check()", "returned = ms.run_check() or 1", "returned is None"),
        ("fit = msnb.doctor(device_target)", 'fit = torn_twin = msnb.doctor("GPU")', "fit.ok"),
    ],
    "02_lenet_port": [
        (
            'self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid", has_bias=True)',
            'self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid")',
            "conv1.bias has no partner",
        ),
        (
            "x = self.pool2(ops.relu(self.conv2(x)))",
            "x = self.pool2(ops.leaky_relu(self.conv2(x), 0.01))",
            "layers.ok",
        ),
        ("weight[0, 0, 2, 2] *= 1.01", "weight[0, 0, 2, 2] *= 1.0", '== "failed"'),
        ("weight[0, at] *= 1.01", "weight[0, at] *= 1.0", '["fc3"]'),
    ],
    "03_padding_probes": [
        ("before = total // 2", "before = total - total // 2", "even == (0, 1)"),
        (
            'nn.AvgPool2d(3, stride=2, pad_mode="same")(ms.Tensor(colours))',
            'nn.AvgPool2d(3, stride=2, pad_mode="pad", padding=1)(ms.Tensor(colours))',
            '"last row and column" in border',
        ),
        (
            "return ms_conv(WEIGHTS[kernel], stride=stride, **settings)",
            "return ms_conv(WEIGHTS[kernel] * 1.001, stride=stride, **settings)",
            "exact.ok",
        ),
        ("cumsum(terms, axis=1, dtype=np.float32)", "cumsum(terms[:, 1:], axis=1)", "noise <"),
    ],
    "05_graph_mode_switch": [
        (
            "optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)",
            "optimizer = nn.Momentum(net.trainable_params(), 0.0501, 0.9)",
            "PyNative drifted by",
        ),
        (
            'compiled = ms.jit(step, capture_mode=capture_mode) if where == "step" else step',
            "compiled = step",
            'seen["jit: step"]',
        ),
        ("    z = y[:1]", "    z = y[:1].copy()", "view: ['DIFFERS'"),
        ("ms.runtime.launch_blocking()", "pass", 'waited.result()[0] == "mint.stack"'),
    ],
    "06_amp": [
        ("if ok or not skip:", "if True:", "skipped < len(history) / 2"),
        (
            "return (x * x).mean(-1) - x.mean(-1) ** 2",
            "return ((x - x.mean(-1, keep_dims=True)) ** 2).mean(-1)",
            "breaks =",
        ),
        ("return scaler.scale(loss), loss", "return loss, loss", "2 <= skipped"),
        ("return convert(net, level)", 'return convert(net, "O0")', "rewritten_network"),
    ],
    "07_hccl_data_parallel": [
        (
            'shift = turn if phase == "reduce" else turn - 1',
            "shift = turn",
            "np.array_equal(result, sum(arrays))",
        ),
        (
            "return 2 * (p - 1) * alpha + 2 * (p - 1) / p * size * beta",
            "return 2 * (p - 1) * alpha + 2 * size * beta",
            "12.06e-3",
        ),
        (
            "return tuple(all_reduce(grad) / SIZE for grad in grads)",
            "return tuple(all_reduce(grad) for grad in grads)",
            "assert job.ok",
        ),
        (
            'lesson("own seed", data, own=SEED + RANK)',
            'lesson("own seed", data, own=SEED)',
            "assert first ==",
        ),
    ],
    "08_mindir_export": [
        (
            "x = ops.relu(self.convs[0](x)) * mask",
            "x = ops.relu(self.convs[0](x))",
            "off_masked.max()",
        ),
        (
            '"200 at a quarter": black + (train_x[:200] - black) / 4,',
            '"200 at a quarter": black + (train_x[:200] - black) / 1,',
            'right(int8["200 at a quarter"])',
        ),
        (
            "half = np.clip((i + 0.5) * n / m - 0.5, 0, n - 1)",
            "half = np.clip(i * n / m, 0, n - 1)",
            "where[corners]",
        ),
        (
            "return x * ops.exp(x)",
            "return x * ops.exp(x - 1e-4)",
            "by_hand",
        ),
        (
            "model = nn.GraphCell(mindspore.load(path))",
            "model = nn.GraphCell(mindspore.load(path.replace('digits', 'trap')))",
            "away = isolate.run(run_elsewhere",
        ),
    ],
    "04_value_and_grad_training": [
        (
            "return forward_fn, ms.value_and_grad(forward_fn, None, weights, has_aux=True)",
            "return forward_fn, ms.value_and_grad(forward_fn, None, weights)",
            "off < 1e-6",
        ),
        (
            "nn.Momentum(ms_net.trainable_params(), 0.05, 0.9)",
            "nn.Momentum(ms_net.trainable_params(), 0.0501, 0.9)",
            "(apart <= band).all()",
        ),
        (
            'state = {} if weights_only else {"optimizer": optimizer}',
            "state = {}",
            "exact == (not weights_only)",
        ),
        (
            "net.set_train(False)  # what a fresh net is, and what an evaluation leaves behind",
            "net.set_train()",
            "assert same",
        ),
    ],
}


def cells_with(notebook: Any, line: str) -> list[Any]:
    return [cell for cell in code(notebook) if line in cell.source]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_notebook_has_three_mutations_that_apply(path: Path) -> None:
    mutations = MUTATIONS[path.stem]
    assert len(mutations) >= 3
    for line, becomes, _ in mutations:
        assert "\n" not in line + becomes
        (cell,) = cells_with(read(path), line)
        assert cell.source.count(line) == 1


def where_it_failed(text: str) -> str:
    """The line that raised and the message, out of a whole coloured traceback."""
    lines = re.sub("\x1b\\[[0-9;]*m", "", text).strip().splitlines()
    return "\n".join([line for line in lines if line.startswith("--")] + lines[-1:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stem", "mutation"),
    [(stem, mutation) for stem, mutations in MUTATIONS.items() for mutation in mutations],
    ids=[f"{stem}-{at}" for stem, mutations in MUTATIONS.items() for at in range(len(mutations))],
)
def test_a_mutated_notebook_fails(
    stem: str, mutation: tuple[str, str, str], tmp_path: Path
) -> None:
    line, becomes, words = mutation
    notebook = read(ROOT / "notebooks" / f"{stem}.ipynb")
    (cell,) = cells_with(notebook, line)
    cell.source = cell.source.replace(line, becomes)
    with pytest.raises(rewrite.Refused) as refused:
        rewrite.run(notebook, tmp_path)
    assert words in where_it_failed(str(refused.value))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_in_any_folder_and_leaves_nothing(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a folder 名字"
    folder.mkdir()
    notebook = rewrite.run(read(path), folder)
    assert list(folder.iterdir()) == []
    assert not list(CLAUSES["verdict"](path.stem, notebook))


@pytest.mark.slow
def test_the_numpy_2_excerpt_in_01_is_reproduced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*wanted, "numpy==2.4.6"], check=True, timeout=240)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    addition = "ms.Tensor([1.0, 2.0]) + 1"
    notebook = small(f"import mindspore as ms\n{addition}", addition)
    NotebookClient(notebook, kernel_name="msnb", timeout=120, allow_errors=True).execute()
    first, second = ("\n".join(text_of(out) for out in cell.outputs) for cell in notebook.cells)

    excerpt = cell_of(read(ROOT / "notebooks" / "01_env_check.ipynb"), "numpy").source
    block = excerpt.partition("```text")[2].partition("```")[0]
    quoted = re.findall(r"^> (\S.*)$", block, flags=re.MULTILINE)
    said = [line for line in quoted if not line.startswith(("In [", "..."))]
    assert len(said) == 5
    for line in said[:-1]:
        for part in line.split("..."):  # what the excerpt leaves out
            assert part in first
    assert second.strip() == said[-1]


def text_of(out: Any) -> str:
    if out.output_type == "error":
        return f"{out.ename}: {out.evalue}"
    return str(out.text if out.output_type == "stream" else out.data["text/plain"])


# --- the tool that rewrites them -----------------------------------------------------------------


def small(*sources: str) -> Any:
    cells = [nbformat.v4.new_code_cell(source, id=f"cell-{i}") for i, source in enumerate(sources)]
    return nbformat.v4.new_notebook(cells=cells)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import sys; print('noise', file=sys.stderr)", "wrote to stderr"),
        ("1 / 0", "did not run"),
        ("open('left.txt', 'w').close()", "left files behind: left.txt"),
        ("import tempfile; tempfile.gettempdir() + '/x'", "the path"),
        ("object()", "differs in each run"),
    ],
)
def test_the_tool_refuses(source: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(rewrite.Refused, match=words):
        rewrite.run(small("1 + 1", source), tmp_path)


def test_the_tool_cleans_and_replaces_whole_files(tmp_path: Path) -> None:
    source = f"print({str(ROOT)!r} + '/msnb'); print('a'); print('b')"
    notebook = small(source)
    notebook.cells[0].metadata = nbformat.from_dict({"tags": ["kept"], "collapsed": True})
    path = tmp_path / "n.ipynb"
    path.write_text("{}", "utf-8")
    rewrite.write(rewrite.run(notebook, tmp_path), path)
    again = read(path)
    assert again.cells[0].outputs[0].text == "~/msnb/msnb\na\nb\n"
    assert again.cells[0].metadata == {"tags": ["kept"]}
    assert again.cells[0].id == "cell-0"
    assert again.metadata.kernelspec.name == "msnb"
    assert [p.name for p in tmp_path.iterdir()] == ["n.ipynb"]


def test_the_tool_names_the_notebooks_it_knows() -> None:
    assert rewrite.find(["02"]) == rewrite.find(["notebooks/02_lenet_port.ipynb"])
    with pytest.raises(SystemExit, match="no notebook '99'; there are 01_env_check"):
        rewrite.find(["99"])

"""report.html and junit.xml of results written by hand: what is in them, and what is not."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from msnb import cli
from msnb.regression import junit, moved, page
from msnb.regression.results import Judged, NotebookResult, Results
from msnb.report import Check, Report

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(30)).decode()
PLANTED = "<script>document.title='planted'</script><img src=x onerror=alert(1)>&\x00\x1b[31m\ud800"
TRACEBACK = """\
---------------------------------------------------------------------------
JSONDecodeError                           Traceback (most recent call last)
Cell In[3], line 3
      1 print("about to load")
----> 3 value = load("{")

Cell In[2], line 3, in load(text)
      2 def load(text):
----> 3     return json.loads(text)

File ~/.pyenv/versions/3.11.7/lib/python3.11/json/__init__.py:346, in loads(s)
    341     s = s.decode(detect_encoding(s), 'surrogatepass')
    343 if (cls is None):
--> 346     return _default_decoder.decode(s)

    347 kw = {}
File ~/project/.venv/lib/python3.11/site-packages/mindspore/nn/cell.py:337, in Cell.decode(self)
    332 \"\"\"Return.
    333
--> 337 obj, end = self.raw_decode(s)

File ~/project/helpers.py:5, in raw(s)
----> 5 raise ValueError(s)

JSONDecodeError: Expecting property name:
File said line 1 column 2 (char 1)"""
TRIMMED = """\
JSONDecodeError                           Traceback (most recent call last)
Cell In[3], line 3
      1 print("about to load")
----> 3 value = load("{")

Cell In[2], line 3, in load(text)
      2 def load(text):
----> 3     return json.loads(text)

  … 2 frames of libraries
File ~/project/helpers.py:5, in raw(s)
----> 5 raise ValueError(s)

JSONDecodeError: Expecting property name:
File said line 1 column 2 (char 1)"""


def executed(folder: Path, name: str, *outputs: dict[str, Any], source: str = "x = 1") -> str:
    cells = [
        {"cell_type": "markdown", "source": "# t", "metadata": {}},
        {"cell_type": "code", "source": ["a = 1"], "metadata": {}, "outputs": []},
        {"cell_type": "code", "source": source, "metadata": {}, "outputs": list(outputs)},
    ]
    (folder / f"{name}.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}}))
    return f"{name}.ipynb"


def found(folder: Path, **fields: Any) -> Results:
    good = Report("all", [Check("device", "ok", found="CPU")])
    figure = {"output_type": "display_data", "data": {"image/png": PNG + "\n"}}
    bad = Report(
        "port",
        [
            Check(
                *("conv1", "failed", "off by 0.3, limit 3e-06", "0.3", "<3e-06", "msnb.probe()"),
                metrics={"max_abs": 0.3, "limit": 3e-6, "size": 16},
            ),
            Check("fc", "skipped", "no weights"),
        ],
    )
    notebooks = [
        NotebookResult(
            *("01_ok", "notebooks/01_ok.ipynb", {"device_target": "CPU"}, "ok", "fine"),
            required=[Judged(2, good.to_json())],
            seconds=12.5,
            executed=executed(folder, "01_ok"),
        ),
        NotebookResult(
            *("02_bad", "notebooks/02_bad.ipynb", {"device_target": "CPU"}, "failed", "it is off"),
            cell={"number": 2, "id": "c", "line": "compare()"},
            error={"name": "E", "message": "m", "traceback": TRACEBACK},
            required=[Judged(2, bad.to_json())],
            seconds=2.5,
            executed=executed(
                folder,
                "02_bad",
                {"output_type": "stream", "text": ["printed\n", "here\n"]},
                figure,
                source="compare()\nraise",
            ),
            **fields,
        ),
        NotebookResult(
            "03_waits", "notebooks/03_waits.ipynb", {}, "error", "interrupted in cell [2] wait()"
        ),
    ]
    environment = {
        "python": "3.11.7",
        "revision": "0123456789abcdef",
        "dirty": True,
        "memory": 8_000_000_000,
        "versions": {"papermill": "2.7.0"},
        "facts": {"python": {"version": [3, 11, 7]}, "distributions": {"torch": None}},
    }
    return Results("CPU", environment, "2026-11-29T10:00:00+00:00", notebooks, True, 20.0)


class Text(HTMLParser):
    """The text that a browser would show, the tags and the attributes."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text, self.tags, self.attributes = "", [], []
        self.feed(source)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_failures_come_first_with_cell_traceback_and_figure(tmp_path: Path) -> None:
    read = Text(page.render(found(tmp_path), tmp_path))
    order = [read.text.rindex(f"{name} ") for name in ("02_bad", "03_waits", "01_ok")]
    assert order == sorted(order)
    for said in (
        "1 failed, 1 error, 1 ok",
        "revision 0123456789ab",
        "with changes that are not committed",
        "compare()\nraise",
        "printed\nhere",
        "max_abs 0.3 (limit 3e-06)",
        "expected <3e-06",
        "msnb.probe()",
        TRIMMED,
        "8.0 GB",
    ):
        assert said in read.text
    images = [value for tag, name, value in read.attributes if (tag, name) == ("img", "src")]
    assert images == [f"data:image/png;base64,{PNG}"]
    assert ("div", "class", "pair both") in read.attributes
    opened = re.findall(r"<details[^>]*>", page.render(found(tmp_path), tmp_path))
    assert opened == ["<details open>", "<details open>", "<details>", "<details>"]


def test_a_figure_stands_beside_the_report_before_it(tmp_path: Path) -> None:
    figure = {"output_type": "display_data", "data": {"image/png": PNG}}
    cells = [
        {"cell_type": "code", "source": f"{n}", "metadata": {}, "outputs": [figure] * (n != 2)}
        for n in (1, 2, 3, 4)
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}}))
    report = Report("r", [Check("a", "ok"), Check("b", "skipped", "no device")]).to_json()
    result = NotebookResult("n", "n.ipynb", {}, "ok", executed="n.ipynb")
    result.required = [Judged(2, report), Judged(4, report)]
    exhibits = page._exhibits(result, page._document(result, tmp_path))
    assert [
        (e["number"], len(e["reports"]), [f["number"] for f in e["figures"]]) for e in exhibits
    ] == [(1, 0, [1]), (2, 1, [3]), (4, 1, [4])]
    assert exhibits[1]["reports"][0]["status"] == "ok"  # a skip does not spoil it


def test_nothing_is_fetched_from_anywhere(tmp_path: Path) -> None:
    read = Text(page.render(found(tmp_path), tmp_path))
    addresses = [
        str(value) for tag, name, value in read.attributes if name in ("src", "href", "action")
    ]
    for address in addresses:
        assert address.startswith(("data:", "#notebook-")) or address.endswith((".ipynb", ".log"))
    assert read.tags.count("script") == 1
    assert "link" in read.tags  # the empty icon, so that no browser asks for one
    assert "http" not in page.render(found(tmp_path), tmp_path).replace("http-equiv", "")


def test_what_a_notebook_emits_is_text(tmp_path: Path) -> None:
    results = found(tmp_path, remedy=PLANTED, left=[PLANTED])
    plain = len(Text(page.render(found(tmp_path), tmp_path)).tags)
    result = results.notebooks[1]
    result.reason, result.notebook, result.source, result.kernel = (PLANTED,) * 4
    result.parameters = {PLANTED: [PLANTED]}
    result.error = {"name": PLANTED, "message": PLANTED, "traceback": PLANTED}
    check = Check(PLANTED, "failed", PLANTED, PLANTED, PLANTED, PLANTED, {PLANTED: 1.0})
    result.required = [Judged(2, Report(PLANTED, [check, Check("b", "ok")]).to_json())]
    result.executed = executed(
        tmp_path,
        "02_bad",
        {"output_type": "stream", "text": PLANTED},
        {"output_type": "display_data", "data": {"text/html": PLANTED, "image/png": PNG}},
        source=PLANTED,
    )
    results.notes = [PLANTED]
    results.environment["platform"] = PLANTED
    html = page.render(results, tmp_path)
    read = Text(html)
    assert read.tags.count("script") == 1
    assert read.tags.count("img") == 1
    assert len(read.tags) - plain < 20  # the note, the remedy, a row: nothing of theirs
    assert not [name for _, name, _ in read.attributes if name.startswith("on")]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", html.replace("\n", ""))
    assert "<script>document.title" in read.text


@pytest.mark.parametrize(
    "figure",
    [
        None,
        3,
        "",
        "not base64!",
        base64.b64encode(b"GIF89a").decode(),
        base64.b64encode(b"<svg onload=alert(1)>").decode(),
        '"><script>',
        PNG + "A" * page._FIGURE,
    ],
)
def test_a_figure_is_a_png_of_a_reasonable_size(figure: Any) -> None:
    assert page._png(figure) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"cells": 3}', '{"cells": [3]}'])
def test_a_torn_notebook_costs_its_figures_alone(tmp_path: Path, content: str) -> None:
    results = found(tmp_path)
    (tmp_path / "02_bad.ipynb").write_text(content)
    html = page.render(results, tmp_path)
    assert "compare()" in html
    assert "<img" not in html
    results.notebooks[1].executed = "../02_bad.ipynb"  # no path leads out of the folder
    assert "<img" not in page.render(results, tmp_path)


def test_the_headline(tmp_path: Path) -> None:
    results = found(tmp_path)
    results.complete = False
    assert "<h1>interrupted: 2 of 3 notebooks ran to a verdict</h1>" in page.render(
        results, tmp_path
    )
    results.complete, results.notebooks = True, results.notebooks[:1]
    assert "<h1>1 notebook ok</h1>" in page.render(results, tmp_path)
    skipped = NotebookResult("09_new", "notebooks/09_new.ipynb", {}, "skipped", "needs 2.11")
    results.notebooks.append(skipped)
    assert "<h1>1 skipped, 1 ok</h1>" in page.render(results, tmp_path)


def test_the_policy_names_the_one_script(tmp_path: Path) -> None:
    import hashlib

    html = page.render(found(tmp_path), tmp_path)
    script = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)[-1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html
    assert "default-src 'none'" in html


def test_frames_of_libraries_go_and_the_rest_stays() -> None:
    assert page.users_frames(TRACEBACK) == TRIMMED
    only_library = "File ~/.venv/lib/python3.11/site-packages/a.py:1, in f\n----> 1 x\n\nE: no"
    assert page.users_frames(only_library) == only_library
    assert page.users_frames("") == ""
    coloured = "\x1b[31mCell In[1], line 1\x1b[39m\n----> 1 1/0\n\nZeroDivisionError: no"
    assert page.users_frames(coloured).splitlines()[0] == "Cell In[1], line 1"


def test_junit_is_xml_whatever_is_in_it(tmp_path: Path) -> None:
    results = found(tmp_path)
    results.notebooks[1].reason = PLANTED
    root = ElementTree.fromstring(junit.render(results))
    counts = {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "6", "failures": "2", "errors": "1", "skipped": "1"}
    cases = {case.get("name"): [child.tag for child in case] for case in root[1]}
    assert cases == {"verdict": ["failure"], "port: conv1": ["failure"], "port: fc": ["skipped"]}
    failure = root[1][0][0]
    assert str(failure.get("message")).startswith("<script>document.title='planted'</script>")
    assert "… 2 frames of libraries" in str(failure.text)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(one, (*path, key))


def test_whatever_is_wrong_in_a_results_file_is_one_sentence_or_harmless(tmp_path: Path) -> None:
    found(tmp_path).write(tmp_path)
    whole = (tmp_path / "results.json").read_text()
    refused = rendered = 0
    for path in leaves(json.loads(whole)):
        for strange in (None, "x", 7, [3], {"a": "b"}, "gone"):
            record = json.loads(whole)
            place = record
            for key in path[:-1]:
                place = place[key]
            if strange == "gone":
                del place[path[-1]]
            else:
                place[path[-1]] = strange
            (tmp_path / "results.json").write_text(json.dumps(record))
            try:
                results = Results.read(tmp_path)
            except ValueError:
                refused += 1
                continue
            junit.render(results)
            moved.runs(json.loads(whole), results.to_json())
            if rendered % 10 == 0:  # of the harmless ones some, for the time it takes
                page.render(results, tmp_path)
            rendered += 1
    assert refused > 300
    assert rendered > 100


def test_report_writes_them_again_and_says_what_moved(tmp_path: Path) -> None:
    for name in ("A", "B"):
        (tmp_path / name).mkdir()
        results = found(tmp_path / name)
        if name == "B":
            results.notebooks[0].verdict = "failed"
        results.write(tmp_path / name)

    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(cli.make_app(), ["report", *arguments])

    one, other = str(tmp_path / "A"), str(tmp_path / "B")
    again = invoke(one)
    assert again.exit_code == 1  # as the run it shows
    assert again.stdout.startswith("msnb run on CPU: FAILED (1 failed, 1 error, 1 ok)")
    assert {path.name for path in (tmp_path / "A").glob("*.[hx]*ml")} == {
        "report.html",
        "junit.xml",
    }
    assert invoke(one, one).exit_code == 0
    worse = invoke(one, other, "--json")
    assert worse.exit_code == 1
    (check,) = json.loads(worse.stdout)["checks"]
    assert (check["id"], check["summary"]) == ("verdict 01_ok", "ok -> failed; fine")
    assert invoke(other, one).exit_code == 0
    for bad, sentence in (
        (str(tmp_path), f"{tmp_path / 'results.json'} cannot be read: No such file or directory"),
        (str(tmp_path / "A" / "report.html"), "is not the results.json of a run"),
    ):
        refused = invoke(bad)
        assert refused.exit_code == 2
        assert sentence in refused.stderr
        assert "Traceback" not in refused.stderr
    damaged = json.loads((tmp_path / "A" / "results.json").read_text())
    damaged["notebooks"][0]["required"][0]["report"].pop("checks")
    (tmp_path / "B" / "results.json").write_text(json.dumps(damaged))
    refused = invoke(one, other)
    assert refused.exit_code == 2
    assert "is damaged: no 'checks'" in refused.stderr
    twice = json.loads((tmp_path / "A" / "results.json").read_text())
    twice["notebooks"] *= 2
    (tmp_path / "B" / "results.json").write_text(json.dumps(twice))
    refused = invoke(other)
    assert refused.exit_code == 2
    assert "is damaged: 01_ok is there twice" in refused.stderr

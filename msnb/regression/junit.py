"""``junit.xml``: the run as CI systems read it, a suite a notebook, a case a required check."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from msnb.regression.page import users_frames
from msnb.regression.results import NotebookResult, Results, write_whole

FILE = "junit.xml"

# What XML 1.0 cannot hold at all, escaped or not (section 2.2, Characters).
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAGS = {"failed": "failure", "error": "error", "skipped": "skipped"}


def write(found: Results, folder: Path) -> Path:
    """Write the file for the run in ``folder``; returns its path."""
    path = folder / FILE
    write_whole(path, render(found))
    return path


def render(found: Results) -> str:
    """The run as JUnit XML: the verdict is each suite's first case, its required checks follow."""
    root = ElementTree.Element("testsuites", name=f"msnb run on {found.device}")
    for result in found.notebooks:
        root.append(_suite(result, found.started))
    suites = root.findall("testsuite")
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in suites)))
    root.set("time", f"{found.seconds:.3f}")
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _suite(result: NotebookResult, started: str) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=_text(result.notebook), timestamp=started[:19])
    case = _case(suite, result.notebook, "verdict", result.seconds)
    trace = users_frames((result.error or {}).get("traceback", ""))
    hint = str(result.hint() or "")
    said = "\n".join(filter(None, (result.reason, result.remedy, hint, trace)))
    _outcome(case, result.verdict, result.reason, said)
    names: set[str] = set()
    for judged in result.required:
        for check in judged.report["checks"]:
            name, count = f"{judged.report['title']}: {check['id']}", 2
            while name in names:
                name, count = f"{judged.report['title']}: {check['id']} [{count}]", count + 1
            names.add(name)
            case = _case(suite, result.notebook, name, 0)
            summary = check["summary"] or check["found"]
            lines = (summary, check["found"], check["expected"], check["remedy"])
            _outcome(case, check["status"], summary, "\n".join(filter(None, lines)))
    suite.set("tests", str(len(suite)))
    for total, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(total, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("time", f"{result.seconds:.3f}")
    return suite


def _case(
    suite: ElementTree.Element, notebook: str, name: str, seconds: float
) -> ElementTree.Element:
    return ElementTree.SubElement(
        suite,
        "testcase",
        classname=_text(notebook),
        name=_text(name),
        time=f"{seconds:.3f}",
    )


def _outcome(case: ElementTree.Element, status: str, message: str, text: str) -> None:
    if tag := _TAGS.get(status):
        outcome = ElementTree.SubElement(case, tag, message=_text(message))
        if tag != "skipped":
            outcome.text = _text(text)


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)

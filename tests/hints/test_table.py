"""The table itself: every entry is whole, its message is known by it, and its neighbour is not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from producing import masked, produce

from msnb import hints
from msnb.hints import table
from msnb.hints.explaining import _found

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
KINDS = hints.kinds()
ENTRY = """\
- id: amp-level
  pattern: The amp level \\w+ is not supported
  means: there is no such level.
  causes:
    - a slip
  type: |
    "O2"
  versions: MindSpore 2.10
  source: by hand
  message: The amp level O4 is not supported
  neighbour: The amp level
"""


def test_there_are_kinds_enough_in_every_topic() -> None:
    topics = {kind.topic for kind in KINDS.values()}
    assert len(KINDS) >= 150
    assert topics == {
        *("environment", "device", "porting", "operators", "graph"),
        *("training", "data", "files", "distributed", "notebook"),
    }
    assert sum(bool(kind.example) for kind in KINDS.values()) >= 100


def test_every_recorded_message_is_known_by_its_own_kind() -> None:
    wrong = {
        kind.id: [hint.kind.id for hint in _found(kind.message)]
        for kind in KINDS.values()
        if [hint.kind.id for hint in _found(kind.message)][:1] != [kind.id]
    }
    assert wrong == {}


def test_no_near_neighbour_matches() -> None:
    wrong = [
        kind.id
        for kind in KINDS.values()
        if kind.id in {hint.kind.id for hint in _found(kind.neighbour)}
    ]
    assert wrong == []


def test_neighbours_are_near() -> None:
    # one that shares no word with its kind would prove nothing
    def words(text: str) -> set[str]:
        return set(re.findall(r"[a-z]{2,}", text.lower()))

    far = [kind.id for kind in KINDS.values() if not words(kind.neighbour) & words(kind.message)]
    assert far == []


def test_every_section_exists() -> None:
    headings = set()
    for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                found = re.findall(r"^##+ (.+)$", "".join(cell["source"]), re.MULTILINE)
                headings |= {f"{path.name[:2]} {heading.strip()}" for heading in found}
    sections = {kind.section for kind in KINDS.values() if kind.section}
    assert len(sections) >= 20
    assert sections - headings == set()


def test_names_in_sentences_are_filled_in() -> None:
    for kind in KINDS.values():
        hint = hints.find(kind.message)[0]
        for sentence in (hint.means, *hint.causes, hint.type):
            assert not re.search(r"\{(?:name|op|given|got|want|size|index|level)\}", sentence), (
                kind.id
            )


def test_a_number_sign_never_cuts_a_text_off() -> None:
    # in YAML, ` #` in a plain text begins a comment, and the rest is lost without a word
    folder = resources.files("msnb.hints") / "kinds"
    for file in folder.iterdir():
        if file.name.endswith(".yaml"):
            text = file.read_text(encoding="utf-8")
            assert not re.findall(r"^  (?:  - |\w+: )[^|\"'\n].* #.*$", text, re.MULTILINE), file


def test_no_place_of_this_machine_is_recorded() -> None:
    here = str(Path(__file__).parents[2])
    for kind in KINDS.values():
        assert here not in f"{kind.message}{kind.example}{kind.neighbour}", kind.id


@pytest.mark.parametrize(
    ("cut", "put", "sentence"),
    [
        ("  pattern: .*\n", "", "amp-level: pattern is a text, or a list of texts"),
        ("  pattern: .*\n", "  pattern: (a\n", "amp-level: pattern is no regular expression"),
        ("  pattern: .*\n", "  pattern: level\n", "a pattern that says 5 characters matches by"),
        ("  means: .*\n", "", "amp-level: means missing"),
        ("  type: .*\n.*\n", "", "amp-level: type missing"),
        ("  causes:\n.*\n", "", "amp-level: cause is a text, or a list of texts"),
        ("  message: .*\n", "", "amp-level: message missing"),
        ("  neighbour: .*\n", "", "amp-level: neighbour missing"),
        ("  versions: .*\n", "  versions: 2.10\n", "amp-level: versions is a text, not 2.1; quote"),
        ("  source: .*\n", "", "either example (code) or source (of the message) is needed"),
        ("  source: ", "  sauce: ", "amp-level: no such field: sauce"),
        ("  source: .*\n", "  source: x\n  process: none\n", "process is shared or own, not none"),
        ("- id: amp-level\n ", "-", "an entry begins with '- id: ' and a name"),
        ("(?s).*", "id: amp-level", "a list of entries is expected"),
        ("(?s).*", "- id: [", "not YAML"),
    ],
)
def test_a_damaged_entry_is_named(cut: str, put: str, sentence: str) -> None:
    assert table.read(ENTRY, "x.yaml")[0].id == "amp-level"
    damaged, count = re.subn(cut, lambda _: put, ENTRY, count=1)
    assert count == 1
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        table.read(damaged, "x.yaml")
    assert str(caught.value).startswith("x.yaml: ")


def test_alternatives_count_as_the_shortest() -> None:
    assert table._literal("abc(?:de|f)g") == 5
    assert table._literal(r"abc(?P<name>\w+)\.d") == 5
    assert table._literal(r"a(?!bcd)e\[\d+\][xyz]{0,3}") == 4


def judged(kind: hints.Kind, text: str) -> str:
    """Why the example's output is not the recorded one; empty where it is."""
    found = _found(text)
    if not found or found[0].kind.id != kind.id:
        return f"{kind.id}: taken for {[hint.kind.id for hint in found]}: {text[-300:]}"
    recorded = _found(kind.message)[0].line
    if masked(found[0].line) != masked(recorded):
        return f"{kind.id}: ended in {found[0].line!r}, recorded is {recorded!r}"
    return ""


def test_another_message_than_the_recorded_one_is_told() -> None:
    kind = KINDS["amp-level"]
    assert judged(kind, kind.message) == ""
    assert judged(kind, "ValueError: The amp level O9 is not supported") == ""
    assert judged(kind, "ValueError: The amp level best is not supported").startswith(
        "amp-level: e"
    )
    assert judged(kind, "ValueError: no").startswith("amp-level: taken for []")


@pytest.mark.slow
def test_every_example_ends_in_its_message(tmp_path: Path) -> None:
    examples = {kind.id: kind.example for kind in KINDS.values() if kind.example}
    own = {id for id in examples if KINDS[id].process == "own"}
    texts = produce({id: examples[id] for id in examples if id not in own}, tmp_path / "shared")
    for id in own:
        texts |= produce({id: examples[id]}, tmp_path / id)
    wrong = [said for id, text in texts.items() if (said := judged(KINDS[id], text))]
    assert wrong == []


@pytest.mark.slow
def test_what_to_type_exists() -> None:
    planted = {
        "name": "ms.nope(1)",
        "keyword": "nn.Conv2d(3, 8, 3, paddding=1)    # a slip",
        "verb": "msnb explian",
        "option": "msnb run 3 --cel-timeout 9",
    }
    types = {kind.id: kind.type for kind in KINDS.values()}
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("naming.py"))],
        input=json.dumps({**types, **planted}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    last = run.stdout.splitlines()[-1:] or [run.stderr]
    assert json.loads(last[0].removeprefix("WRONG ")) == [
        "name: there is no ms.nope",
        "keyword: nn.Conv2d takes no paddding=",
        "verb: there is no msnb explian",
        "option: msnb run has no --cel-timeout",
    ]


@pytest.mark.parametrize(
    "notebook", sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")), ids=lambda path: path.stem
)
def test_every_error_that_a_notebook_shows_is_known(notebook: Path) -> None:
    outputs = [
        output
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        for output in cell.get("outputs", ())
    ]
    texts = [
        "".join(output.get("text") or output.get("data", {}).get("text/plain", ()))
        for output in outputs
    ]
    shown = re.findall(r"\b[A-Z]\w+Error: [^\n]{30,}", "\n".join(texts))
    own = ("FileNotFoundError", "CheckpointError")  # they name a file, or are msnb's
    unknown = [said for said in shown if not said.startswith(own) and not hints.best(said)]
    assert unknown == []

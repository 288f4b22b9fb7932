"""The engine of the recorded differences: what it lets pass and, above all, what it does not."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from msnb import cli
from msnb import differences as recorded_differences
from msnb.differences import Observation, Raised, difference, judge, same, verify
from msnb.differences import _check as check_of  # the row that users read

ONE, TWO = np.float32([1, 2, 3]), np.float32([1, 2, 4])
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("torch", "mindspore", "right", "verdict"),
    [
        (ONE, ONE, None, "agrees"),
        (ONE, TWO, None, "differs"),
        (ONE, TWO, ONE.astype(np.float64).astype(np.float32), "off"),
        (ONE, TWO, TWO, "differs"),  # MindSpore is the one that is right
        (ONE, Raised("ValueError", "no"), None, "raises"),
        (Raised("IndexError", "no"), ONE, None, "accepts"),
        (Raised("IndexError", "no"), Raised("ValueError", "never"), None, "agrees"),
        ("int64", "int32", None, "differs"),
        ((1, "a", None), (1, "a", None), None, "agrees"),
        ({"a": ONE}, {"b": ONE}, None, "differs"),
        (ONE, ONE.astype(np.float64), None, "differs"),  # another dtype
        (ONE, ONE[None], None, "differs"),  # another shape
        (True, 1, None, "differs"),
    ],
)
def test_judge(torch, mindspore, right, verdict):
    assert judge(torch, mindspore, right) == verdict


def test_exceptions_are_the_same_by_type_and_part_of_the_message():
    seen = Raised("ValueError", "For 'Conv2D', the 'pad' must be zero, but got 1")
    assert same(Raised("ValueError", "the 'pad' must be zero"), seen)
    assert not same(Raised("TypeError", "the 'pad' must be zero"), seen)
    assert not same(Raised("ValueError", "stride"), seen)


def row(observation: Observation, expected="differs", version: str = "2.10.0"):
    """The Check of one statement with a given observation, on a given version."""
    made = difference("x", "It differs.", torch="a", mindspore="b", expected=expected)(
        lambda: observation
    )
    seen = verify(made)
    return check_of(made, dataclasses.replace(seen, version=version), "CPU")


GOOD = Observation(torch=ONE, mindspore=TWO, claim=TWO, neighbour=(ONE, ONE))


def test_a_statement_that_holds():
    assert row(GOOD).status == "ok"
    assert row(GOOD).summary == "differs: It differs."


@pytest.mark.parametrize(
    ("observation", "problem"),
    [
        (dataclasses.replace(GOOD, mindspore=ONE), "MindSpore gives .* the statement says"),
        (dataclasses.replace(GOOD, claim=ONE), "MindSpore gives .* the statement says"),
        (dataclasses.replace(GOOD, neighbour=(ONE, TWO)), "near neighbour has the same verdict"),
        (
            dataclasses.replace(GOOD, mindspore=Raised("ValueError", "no"), claim=None),
            "raises .MindSpore raises, PyTorch gives a value",
        ),
    ],
)
def test_a_statement_that_no_longer_holds_fails(observation, problem):
    check = row(observation)
    assert check.status == "failed"
    assert re.search(problem, check.summary), check.summary


def test_a_version_without_a_record_is_new_not_failed():
    check = row(GOOD, version="2.11.0")
    assert check.status == "skipped"
    assert check.summary.startswith("new: nothing is recorded for MindSpore 2.11.0 on CPU")
    assert "differs" in check.summary


def test_each_version_has_its_own_verdict():
    expected = (("<2.10", "CPU", "agrees"), (">=2.10,<2.11", "CPU", "differs"))
    assert row(GOOD, expected).status == "ok"
    assert row(GOOD, expected, version="2.9.0").status == "failed"


def row_since(observation: Observation, version: str):
    made = difference(
        *("x", "It differs."),
        torch="a",
        mindspore="b",
        expected="differs",
        since="2.9",
        before="it agreed.",
    )(lambda: observation)
    return check_of(made, dataclasses.replace(verify(made), version=version), "CPU")


@pytest.mark.parametrize("version", ["2.7.2", "2.8.0", "2.9.0", "2.10.0"])
def test_a_bare_verdict_stands_for_the_versions_where_it_was_measured(version):
    assert row(GOOD, version=version).status == "ok"
    assert row(dataclasses.replace(GOOD, mindspore=ONE), version=version).status == "failed"


@pytest.mark.parametrize("mindspore", [TWO, ONE])
def test_a_version_before_since_is_skipped_by_name_whatever_it_gives(mindspore):
    check = row_since(dataclasses.replace(GOOD, mindspore=mindspore), "2.8.0")
    assert check.status == "skipped"
    assert check.summary == "needs MindSpore 2.9 or later. Before: it agreed."


@pytest.mark.parametrize("version", ["2.9.0", "2.10.0"])
def test_from_since_on_a_statement_has_to_hold(version):
    assert row_since(GOOD, version).status == "ok"
    assert row_since(dataclasses.replace(GOOD, mindspore=ONE), version).status == "failed"


@pytest.mark.parametrize("given", [{"since": "2.9"}, {"before": "it agreed."}])
def test_since_says_what_was_before(given):
    with pytest.raises(ValueError, match="since and before go together"):
        difference("x", "s", torch="a", mindspore="b", expected="agrees", **given)


def test_code_that_raises_is_an_error_and_named():
    def broken() -> Observation:
        raise RuntimeError("no such thing")

    made = difference("x", "It differs.", torch="a", mindspore="b", expected="differs")(broken)
    check = check_of(made, verify(made), "CPU")
    assert check.status == "failed"
    assert "its code raised RuntimeError: no such thing" in check.summary


def test_a_process_is_made_ready_before_its_first_statement(monkeypatch):
    """Also the one that takes over after a statement that was fatal."""
    steps = []
    monkeypatch.setattr(recorded_differences, "_prepare", lambda: steps.append("ready"))
    monkeypatch.setattr(recorded_differences, "verify", lambda one: steps.append(one.id))
    recorded_differences._verify_by_id("padding.bias-default")
    assert steps == ["ready", "padding.bias-default"]


def test_an_unknown_verdict_is_refused():
    with pytest.raises(ValueError, match="not 'wrong'"):
        difference("x", "s", torch="a", mindspore="b", expected="wrong")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("paddin", "no topic 'paddin': did you mean 'padding'?"),
        ("padding.same-strid-2", "no difference 'padding.same-strid-2'; near it: padding.same-str"),
    ],
)
def test_unknown_names(name, sentence):
    done = CliRunner().invoke(cli.make_app(), ["differences", name])
    assert done.exit_code == 2
    assert sentence in done.output


def test_topics_are_listed_with_counts():
    done = CliRunner().invoke(cli.make_app(), ["differences"])
    assert done.exit_code == 0
    counts = {line.split()[0]: int(line.split()[1]) for line in done.output.splitlines()[:-1]}
    assert counts == recorded_differences.count()
    assert sum(counts.values()) >= 80


@pytest.mark.parametrize("shape", ["--markdown", "--json"])
def test_a_page_of_no_topic_is_refused(shape):
    done = CliRunner().invoke(cli.make_app(), ["differences", shape])
    assert done.exit_code == 2
    assert "nothing to run: name topics, or --all" in done.output


def _ids() -> list[str]:
    """The ids in the topic modules, read as text."""
    return [
        f"{topic}.{id}"
        for topic in recorded_differences.topics()
        for id in re.findall(
            r"@difference\(\s*\"([^\"]+)\"",
            (ROOT / f"msnb/differences/{topic}.py").read_text(encoding="utf-8"),
        )
    ]


def test_the_page_has_every_statement():
    page = (ROOT / "docs/differences.md").read_text(encoding="utf-8")
    on_page, topic = [], ""
    for line in page.splitlines():
        if line.startswith("## "):
            topic = line[3:].partition(":")[0]
        elif line.startswith("| ") and not line.startswith("| id "):
            on_page.append(f"{topic}.{line.split(' | ')[0][2:]}")
    assert on_page == _ids(), (
        "write it again: msnb differences --all --markdown > docs/differences.md"
    )
    assert len(set(on_page)) == len(on_page)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_statement_holds_and_the_page_is_what_a_run_gives():
    report = recorded_differences.run()
    assert {check.id: check.summary for check in report if not check} == {}
    assert recorded_differences.markdown(report) == (ROOT / "docs/differences.md").read_text(
        encoding="utf-8"
    )

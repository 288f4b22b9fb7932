"""explain() and `msnb explain`: what a text is taken for, however it was pasted."""

from __future__ import annotations

import io
import json
import sys
import textwrap
from pathlib import Path

import pytest
from hccl_logs import CAUSES, LOGS
from typer.testing import CliRunner, Result

from msnb import cli, hints
from msnb.hints import explaining
from msnb.report import Report

GATHER = "RuntimeError: For 'Gather', the 'input_indices' should be in the range [0, 5), but got 7"
TRACEBACK = """\
Traceback (most recent call last):
  File "/home/a b/笔记/train.py", line 31, in <module>
    loss, grads = step(x, y)
  File "/opt/env/lib/python3.11/site-packages/mindspore/common/api.py", line 1234, in wrapper
    return function(*args)
"""


def first(text: str | BaseException) -> str:
    return hints.explain(text).checks[0].id


def coloured(text: str) -> str:
    words = text.split(" ")
    return " ".join(f"\x1b[38;5;{n % 200}m{word}\x1b[0m" for n, word in enumerate(words))


@pytest.mark.parametrize(
    "id", ["numpy-2", "graph-self", "matmul-shapes", "hccl-port", "labels-int32"]
)
def test_the_way_it_was_pasted_does_not_count(id: str) -> None:
    message = hints.kinds()[id].message
    disguises = {
        "as it is": message,
        "colours": coloured(message),
        "a terminal's width": "\n".join(textwrap.wrap(message, 37)),
        "broken in words": "\n".join(message[n : n + 29] for n in range(0, len(message), 29)),
        "quoted": "".join(f"> {line}\n" for line in message.splitlines()),
        "pytest": "".join(f"E       {line}\n" for line in message.splitlines()),
        "carriage returns": message.replace("\n", "\r\n"),
        "repr": repr(message),
        "JSON": json.dumps({"evalue": message}),
        "no quotes, as a shell leaves it": message.replace("'", "").replace('"', ""),
        "curly quotes": message.replace("'", "’"),
        "capitals": message.upper(),
        "a traceback": TRACEBACK + message,
        "a log before and after": f"step 1, loss 2.3\n{message}\nstep 2, loss 2.2\n",
    }
    wrong = {how: hints.explain(text).checks[0].id for how, text in disguises.items()}
    assert wrong == dict.fromkeys(disguises, id)


@pytest.mark.parametrize(
    ("text", "id"),
    [
        (GATHER.replace("5", "30522").replace("7", "-1"), "index-range"),
        ("in the range [0, 5), but got 7 For 'Gather', the 'input_indices'", "unknown"),
        ("For 'MatMulExt' op, shape1[-1] must be equal to shape2[-2], but got 400 and 256.",
         "matmul-shapes"),
        ("num_parallel_workers exceeds the boundary between 1 and 192!", "data-workers"),
        ("RuntimeError: The kernel Conv2DExt unregistered.", "kernel-unregistered"),
        ("NotImplementedError: einsum only supports Ascend.", "kernel-unregistered"),
        ("runtime result = 507015", "device-core-exception"),
        ("AttributeError: 'Net' object has no attribute 'train'", "cell-train"),
        ("AttributeError: 'Net' object has no attribute 'trainer'", "unknown"),
    ],
)  # fmt: skip
def test_numbers_and_names_of_others(text: str, id: str) -> None:
    assert first(text) == id


def test_the_last_exception_counts_most() -> None:
    one = "ValueError: The amp level O4 is not supported"
    other = "AttributeError: 'Tensor' object has no attribute 'detach'"
    between = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    assert first(TRACEBACK + one + between + TRACEBACK + other) == "tensor-detach"
    assert first(TRACEBACK + other + between + TRACEBACK + one) == "amp-level"
    # what wraps it is not known: the cause is found all the same
    wrapped = TRACEBACK + one + between + TRACEBACK + "RuntimeError: job 7 failed"
    assert first(wrapped) == "amp-level"
    assert [check.id for check in hints.explain(TRACEBACK + one + between + other)] == [
        "tensor-detach",
        "amp-level",
    ]


def test_the_most_specific_wins() -> None:
    general = "map operation: [PyFunc] failed. Error description:\nKeyError: 3"
    special = "map operation: [PyFunc] failed. Got None from Python object."
    frame = "RuntimeError: Exception thrown from user defined Python function in dataset.\n"
    assert first(frame + general) == "data-user-function"
    assert first(frame + special) == "data-none"


def test_an_exception_itself_and_those_that_led_to_it() -> None:
    wrapped = RuntimeError("the job failed")
    wrapped.__cause__ = ValueError("The amp level O4 is not supported")
    assert first(wrapped) == "amp-level"
    assert hints.best(wrapped).kind.id == "amp-level"
    wrapped.__context__ = wrapped.__cause__.__context__ = wrapped  # a ring ends all the same
    assert first(wrapped) == "amp-level"
    with pytest.raises(KeyError) as other:
        raise KeyError("x")  # Unsupported statement 'Try': source lines are no messages
    assert first(other.value) == "unknown"


def test_what_a_hint_says() -> None:
    report = hints.explain(TRACEBACK + GATHER)
    check = report["index-range"]
    assert isinstance(report, Report)
    assert not report.ok
    assert check.summary.startswith(
        "index 7 was looked up in a table of 5 rows.\nbeware: asynchronous"
    )
    assert "1. an Embedding smaller than the vocabulary" in check.summary
    assert "see notebook 04 The optimizer's own rules" in check.summary
    assert check.found == GATHER
    assert "embedding.vocab_size" in check.remedy


def test_messages_that_blame_the_wrong_thing_say_so() -> None:
    kinds = hints.kinds()
    blaming = {id for id, kind in kinds.items() if kind.blames}
    assert {"kernel-unregistered", "index-range", "device-core-exception"} <= blaming
    assert {"numpy-2", "graph-self", "collective-missed", "static-tls"} <= blaming
    said = str(hints.best(kinds["kernel-unregistered"].message))
    assert "asynchronous" in said
    assert "earlier than the line named" in said
    assert "launch_blocking" in said


def test_an_unknown_text_gets_three_guesses() -> None:
    report = hints.explain("RuntimeError: the kernel StackExt could not be found on device CPU")
    unknown, *guesses = report.checks
    assert (unknown.id, unknown.status) == ("unknown", "error")
    assert unknown.remedy
    assert len(guesses) == 3
    assert guesses[0].id == "kernel-unregistered"
    assert all(guess.status == "skipped" for guess in guesses)
    assert all(guess.summary.startswith("a guess: ") and guess.remedy for guess in guesses)
    assert "the operator StackExt has no kernel on CPU." in guesses[0].summary


def test_nothing_resembles_nothing() -> None:
    report = hints.explain("qwertz 1 2 3")
    assert [check.id for check in report] == ["unknown"]
    assert hints.best("qwertz") is None
    assert hints.best("") is None


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ("", ValueError, "there is no text to explain"),
        (" \n\x1b[0m ", ValueError, "there is no text to explain"),
        (b"RuntimeError", TypeError, "not bytes: decode them first"),
        (None, TypeError, "takes the text of an error, or an exception, not NoneType"),
        ("\x00\x01", ValueError, "binary data"),
        ("x" * 200_001, ValueError, "200,001 characters are too many to explain (limit 200,000)"),
    ],
)
def test_bad_input_is_one_sentence(given: object, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error) as caught:
        hints.explain(given)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_long_line_takes_no_time() -> None:
    # unbounded repetitions in a pattern would make this square in the length
    assert first("x" * 50_000 + GATHER) == "index-range"
    assert hints.best("word " * 10_000) is None


@pytest.mark.parametrize("name", LOGS)
def test_hccl_logs_that_launch_knows_are_known_here_too(name: str) -> None:
    assert name in CAUSES
    assert hints.best(LOGS[name]).kind.topic == "distributed"


# The command


def invoke(*arguments: str, **options: object) -> Result:
    return CliRunner().invoke(cli.make_app(), ["explain", *arguments], **options)


def test_the_command() -> None:
    said = invoke("ValueError: The amp level O4 is not supported")
    assert said.exit_code == 0
    assert said.stdout.startswith("hint: there is no level O4; they are O0, O1, O2, O3 and auto.\n")
    assert '  type: ms.amp.auto_mixed_precision(net, "O2")' in said.stdout
    assert (
        invoke("ValueError:", "The", "amp", "level", "O4", "is", "not", "supported").exit_code == 0
    )


def test_the_command_reads_what_is_piped_in() -> None:
    said = invoke(input=TRACEBACK + GATHER)
    assert said.exit_code == 0
    assert said.stdout.startswith("hint: index 7 was looked up")


def test_the_command_as_json() -> None:
    report = json.loads(invoke("--json", GATHER).stdout)
    assert report["checks"][0]["id"] == "index-range"
    assert report["title"] == "explain"


def test_the_command_guesses() -> None:
    said = invoke("the kernel StackExt could not be found on device CPU")
    assert said.exit_code == 1
    assert said.stdout.startswith("explain: ERROR (1 error, 3 skipped)")
    assert said.stdout.count("a guess:") == 3


@pytest.mark.parametrize(
    ("piped", "sentence"),
    [
        (b"", "there is no text to explain"),
        (b"\x7fELF\x02\x01\x00\x00", "no text but binary data"),
        (bytes(range(128, 256)) * 9, "no text but binary data"),
        (b"x" * 900_000, "more than 200,000 characters are too many to explain"),
        (b"x" * 200_001, "200,001 characters are too many to explain"),
    ],
)
def test_what_the_command_refuses(piped: bytes, sentence: str) -> None:
    said = invoke(input=piped)
    assert said.exit_code == 2
    assert said.stdout == ""
    assert sentence in said.stderr
    assert said.stderr.count("\n") == 1


def test_the_name_of_a_file_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.txt").write_text(GATHER)
    said = invoke("log.txt")
    assert said.exit_code == 2
    assert said.stderr.endswith("not the text of an error: msnb explain < log.txt\n")
    assert invoke("nosuch.txt").exit_code == 1


def test_the_command_without_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    with pytest.raises(ValueError, match="give the text of an error"):
        cli._piped(explaining.LIMIT)

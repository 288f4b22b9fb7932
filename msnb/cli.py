"""The command ``msnb``. Each verb imports what it needs when it is called."""

# No `from __future__ import annotations`: typer reads the annotations, and typer itself is imported
# in a function, so that `msnb doctor` works in an environment in which typer is broken.

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import typer

    from msnb.regression.results import Results
    from msnb.report import Report


def main() -> None:
    """The entry point; exits with the verb's exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path that the encoding lacks
    try:
        os.getcwd()
    except FileNotFoundError:
        print("msnb: the working folder is gone: change into another one", file=sys.stderr)
        sys.exit(2)
    try:
        app = make_app()
    except ImportError as error:
        if sys.argv[1:2] == ["doctor"]:
            sys.exit(_doctor(sys.argv[2:]))
        print(f"msnb cannot start: {error}. Type: msnb doctor", file=sys.stderr)
        sys.exit(2)
    app(prog_name="msnb")


def make_app() -> "typer.Typer":
    """The typer app with all verbs."""
    import typer

    app = typer.Typer(
        help="From PyTorch to MindSpore and Ascend, with proof at every step.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            from msnb import __version__

            print(f"msnb {__version__}")
            raise typer.Exit

    @app.callback()
    def options(
        version: Annotated[
            bool,
            typer.Option(
                "--version", callback=show_version, is_eager=True, help="Say the version."
            ),
        ] = False,
    ) -> None:
        pass

    # its options are those of `python -m msnb.environment`, which must work without typer
    @app.command(
        add_help_option=False,
        context_settings={"ignore_unknown_options": True},
    )
    def doctor(
        options: Annotated[list[str] | None, typer.Argument(metavar="[OPTIONS]")] = None,
    ) -> None:
        """Is this environment fit? 0: yes; 1: no; 2: could not look."""
        raise typer.Exit(_doctor(options or []))

    @app.command()
    def run(
        notebooks: Annotated[
            list[str] | None,
            typer.Argument(help="Numbers (3, 05-07), names or paths; all where none is given."),
        ] = None,
        device_target: Annotated[
            str | None, typer.Option(help="CPU (default), Ascend, GPU or auto.")
        ] = None,
        parameter: Annotated[
            list[str] | None,
            typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="Set a parameter."),
        ] = None,
        out: Annotated[
            Path | None, typer.Option(help="A new folder for the results (default: runs/<time>).")
        ] = None,
        resume: Annotated[
            bool,
            typer.Option(
                "--resume",
                help="Go on with the run in --out, or the last of the same notebooks: run only "
                "what has no valid result.",
            ),
        ] = False,
        jobs: Annotated[
            int | None, typer.Option(min=1, help="Notebooks at a time (default on CPU: cores).")
        ] = None,
        timeout: Annotated[float, typer.Option(help="Seconds a notebook may take.")] = 900,
        cell_timeout: Annotated[float, typer.Option(help="Seconds one cell may take.")] = 300,
        start_timeout: Annotated[float, typer.Option(help="Seconds a kernel may take.")] = 60,
        memory: Annotated[
            float | None,
            typer.Option(help="GB a notebook may take (default: 90 % of all, together)."),
        ] = None,
        baseline: Annotated[
            Path | None,
            typer.Option(
                metavar="FILE", help="Hold the run against this file; fail where it got worse."
            ),
        ] = None,
        update_baseline: Annotated[
            bool, typer.Option("--update-baseline", help="Write what was found to that file.")
        ] = False,
        kernels: Annotated[
            str,
            typer.Option(
                envvar="MSNB_KERNELS",
                show_envvar=False,
                help="fresh: each its own imports; warm: forked from a process that has imported "
                "the frameworks; auto: warm on CPU where notebooks have to wait.",
            ),
        ] = "auto",
        mindspore: Annotated[
            str | None,
            typer.Option(
                metavar="VERSION",
                help="Run with this version of MindSpore: fetched once, the rest as installed.",
            ),
        ] = None,
    ) -> None:
        """Run notebooks, judge them. 0: all ok; 1: not all; 2: nothing ran."""
        if mindspore is not None:
            again = _with_version(mindspore)
            if again is None:
                raise typer.Exit(2)
            sys.stdout.flush()
            os.execve(sys.executable, *again)  # all that follows, judging too, is in that version
        raise typer.Exit(
            _run(
                notebooks or [],
                device_target,
                parameter or [],
                out,
                resume,
                jobs,
                (start_timeout, cell_timeout, timeout, memory),
                kernels,
                (baseline, update_baseline),
            )
        )

    @app.command()
    def report(
        runs: Annotated[
            list[Path] | None,
            typer.Argument(metavar="[RUN [LATER]]", help="The folder of a run, or of two."),
        ] = None,
        matrix: Annotated[
            bool,
            typer.Option(
                "--matrix",
                help="Write docs/matrix.md and docs/matrix.html from baselines/* and the folders "
                "named.",
            ),
        ] = False,
        json: Annotated[bool, typer.Option("--json", help="Print the Report as JSON.")] = False,
    ) -> None:
        """Write a run's report again, or say what moved between two. 1: not ok, or worse; 2: none.

        With one run it writes report.html and junit.xml into its folder.
        """
        if matrix:
            raise typer.Exit(_matrix(runs or []))
        if not runs or len(runs) > 2:
            print(
                "name the folder of a run, or of two to compare; or type: msnb report --matrix",
                file=sys.stderr,
            )
            raise typer.Exit(2)
        raise typer.Exit(_report(runs[0], runs[1] if len(runs) == 2 else None, json))

    @app.command()
    def differences(
        names: Annotated[
            list[str] | None,
            typer.Argument(help="Topics (padding) or ids (padding.same-stride-2)."),
        ] = None,
        everything: Annotated[bool, typer.Option("--all", help="Run every topic.")] = False,
        json: Annotated[bool, typer.Option("--json", help="Print the Report as JSON.")] = False,
        markdown: Annotated[
            bool, typer.Option("--markdown", help="Print the page docs/differences.md.")
        ] = False,
        jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 2,
        timeout: Annotated[float, typer.Option(help="Seconds a statement may take.")] = 60,
    ) -> None:
        """Run recorded differences again. 0: all hold; 1: not all; 2: no such name.

        Without names it lists the topics.
        """
        if not names and not everything:
            if json or markdown:
                print("nothing to run: name topics, or --all", file=sys.stderr)
                raise typer.Exit(2)
            raise typer.Exit(_topics())
        shape = "json" if json else "markdown" if markdown else "text"
        raise typer.Exit(_differences([] if everything else names or [], shape, jobs, timeout))

    @app.command()
    def explain(
        text: Annotated[
            list[str] | None,
            typer.Argument(help="The error's text; read from standard input where none is given."),
        ] = None,
        json: Annotated[bool, typer.Option("--json", help="Print the Report as JSON.")] = False,
    ) -> None:
        """Say what an error means and what to type. 0: known; 1: guesses only; 2: no text."""
        raise typer.Exit(_explain(text or [], json))

    @app.command()
    def launch(
        script: Annotated[str, typer.Argument(help="The training script, a Python file.")],
        args: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="-- ARGS", help="Its arguments; after -- where they have dashes."
            ),
        ] = None,
        world_size: Annotated[int, typer.Option(help="Ranks, of all hosts together.")] = 2,
        device_target: Annotated[
            str, typer.Option(help="CPU, Ascend, GPU or auto; scripts read MSNB_DEVICE_TARGET.")
        ] = "CPU",
        timeout: Annotated[float, typer.Option(help="Seconds the job may take.")] = 300,
        start_timeout: Annotated[
            float, typer.Option(help="Seconds that ranks, and hosts, wait for each other.")
        ] = 20,
        log_dir: Annotated[
            Path | None, typer.Option(help="Keep the ranks' logs here (default: a new folder).")
        ] = None,
        hosts: Annotated[
            str | None, typer.Option(help="Several machines: hostA,hostB; the same on each.")
        ] = None,
        node_rank: Annotated[
            int | None, typer.Option(help="Which of the hosts this is, from 0.")
        ] = None,
        master_port: Annotated[
            int | None, typer.Option(help="The scheduler's port (default: a free one, or 8118).")
        ] = None,
        json: Annotated[bool, typer.Option("--json", help="Print the Report as JSON.")] = False,
    ) -> None:
        """Run a script on several ranks. 0: all well; 1: not; 2: nothing ran."""
        raise typer.Exit(
            _launch(
                script,
                json,
                world_size=world_size,
                device_target=device_target,
                timeout=timeout,
                start_timeout=start_timeout,
                args=args or [],
                log_dir=log_dir,
                hosts=None if hosts is None else [host.strip() for host in hosts.split(",")],
                node_rank=node_rank,
                master_port=master_port,
            )
        )

    @app.command()
    def inspect(
        file: Annotated[
            Path, typer.Argument(help="A .mindir, .ckpt, .safetensors, .pth or .onnx file.")
        ],
        json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    ) -> None:
        """Show what a file holds, and whether it is whole. 0: read; 1: damaged; 2: no file."""
        raise typer.Exit(_inspect(file, json))

    return app


def _explain(words: list[str], as_json: bool) -> int:
    from msnb import hints

    try:
        text = " ".join(words) if words else _piped(hints.LIMIT)
        if len(words) == 1 and " " not in text and "\0" not in text and Path(text[:255]).is_file():
            raise ValueError(f"{text} is a file, not the text of an error: msnb explain < {text}")
        report = hints.explain(text)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if not as_json and (found := hints.find(text)):
        print("\n\n".join(map(str, found)))
    else:
        _print_report(report, as_json)
    return 1 if "unknown" in report else 0


def _piped(limit: int) -> str:
    """What was piped in, as text; ``ValueError`` where nothing was, or no text."""
    if sys.stdin is None or sys.stdin.isatty():
        raise ValueError('give the text of an error: msnb explain "...", or: ... | msnb explain')
    data = sys.stdin.buffer.read(4 * limit + 1)  # a character of UTF-8 has at most 4 bytes
    text = data.decode("utf-8", "replace")
    if len(data) > 4 * limit:  # the rest was not read
        raise ValueError(
            f"more than {limit:,} characters are too many to explain: give the end, as in: "
            "tail -n 200 FILE | msnb explain"
        )
    if "\x00" in text or text.count("\ufffd") > len(text) // 10:
        raise ValueError("what was piped in is no text but binary data: give the error's message")
    return text


def _launch(script: str, as_json: bool, **options: Any) -> int:
    from msnb.distributed.job import launch

    try:
        job = launch(script, **options)
    except (ValueError, TypeError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        print("nothing was run", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: every rank was ended", file=sys.stderr)
        return 130
    _print_report(job.report, as_json)
    return 0 if job.ok else 1


def _inspect(file: Path, as_json: bool) -> int:
    import json

    from msnb.deploy.inspecting import look_into

    try:
        contents = look_into(file.expanduser())
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if as_json:
        print(json.dumps(contents.to_json(), ensure_ascii=False, indent=1))
    else:
        print(contents.text())
    return 1 if contents.report.worst in ("failed", "error") else 0


def _topics() -> int:
    from msnb.differences import count, topics

    counts = count()
    width = max(map(len, counts))
    for topic, about in topics().items():
        print(f"{topic:<{width}}  {counts[topic]:>3}  {about}")
    print(f"{'':<{width}}  {sum(counts.values()):>3}  run them: msnb differences TOPIC, or --all")
    return 0


def _differences(names: list[str], shape: str, jobs: int, timeout: float) -> int:
    import importlib.metadata
    import json
    from datetime import datetime

    from msnb import differences

    try:
        total = len(differences.select(names))
    except ValueError as unknown:
        print(unknown, file=sys.stderr)
        return 2
    done: list[str] = []

    def progress(id: str) -> None:
        done.append(id)
        if sys.stderr.isatty():
            end = "\n" if len(done) == total else ""
            print(f"\r{len(done)}/{total}  {id:<60.60}", end=end, file=sys.stderr, flush=True)

    report = differences.run(names, jobs=jobs, timeout=timeout, progress=progress)
    if shape == "json":
        made = {
            "mindspore": importlib.metadata.version("mindspore"),
            "device": "CPU",
            "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        print(json.dumps({**report.to_json(), **made}, ensure_ascii=False, indent=1))
    elif shape == "markdown":
        print(differences.markdown(report), end="")
    else:
        _print_report(report)
    return 1 if report.worst in ("failed", "error") else 0


def _doctor(arguments: list[str]) -> int:
    from msnb.environment.__main__ import main as doctor_main

    return doctor_main(arguments)


@contextlib.contextmanager
def _deaf() -> "Iterator[dict[int, Any]]":
    import signal

    before: dict[int, Any] = {}
    with contextlib.suppress(ValueError):  # not the main thread
        for signum in (signal.SIGINT, signal.SIGTERM):
            before[signum] = signal.signal(signum, lambda signum, frame: None)
    try:
        yield before
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _with_version(version: str) -> "tuple[list[str], dict[str, str]] | None":
    """The words and the environment of this command with ``version`` of MindSpore in it."""
    from msnb.regression import overlay
    from msnb.regression.catalog import Refused

    try:
        found = overlay.get(version)
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        print("nothing was run", file=sys.stderr)
        return None
    words = sys.argv[1:]
    for position, word in enumerate(words):
        if word.partition("=")[0] == "--mindspore":
            del words[position : position + (1 if "=" in word else 2)]
            break
    # What lies in the working folder, a typer.py say, is not ours to import.
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *safe, "-m", "msnb.cli", *words], found.environment(os.environ)


def _run(
    notebooks: list[str],
    device_target: str | None,
    parameters: list[str],
    out: Path | None,
    resume: bool,
    jobs: int | None,
    limits: tuple[float, float, float, float | None],
    kernels: str,
    baseline: tuple[Path | None, bool],
) -> int:
    from msnb.regression import shares
    from msnb.regression.catalog import Refused
    from msnb.regression.folder import open_folder
    from msnb.regression.planning import Limits, plan
    from msnb.regression.run import run_notebooks

    try:
        if kernels not in ("auto", "warm", "fresh"):
            raise Refused(f"--kernels {kernels}: they are auto, warm or fresh")
        limited = Limits(*limits)
        planned = plan(notebooks, device_target=device_target, parameters=parameters)
        former = _baseline(*baseline, planned.device)
        folder = open_folder(planned, out, resume=resume)
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        print("nothing was run", file=sys.stderr)
        return 2
    if jobs is None:
        jobs = min(shares.cores(), 4) if planned.device == "CPU" else 1
    for note in planned.notes:
        print(note, file=sys.stderr)
    with _deaf() as before:  # run_notebooks hears signals; once it has, a second comes too late
        outcome = run_notebooks(planned, folder, jobs=jobs, limits=limited, kernels=kernels)
        if outcome.signal:
            before.clear()
        _print_report(outcome.results.to_report())
        trouble = outcome.trouble or _pages(outcome.results, folder.path)
        if trouble:
            print(trouble, file=sys.stderr)
        else:
            print(f"report.html, junit.xml, results.json, executed notebooks: {folder.path}")
    if outcome.signal:
        return 128 + outcome.signal
    if trouble and not any(result.seconds for result in outcome.results.notebooks):
        return 2
    held = _hold(outcome.results, former, *baseline, whole=not notebooks)
    return 0 if outcome.results.ok and held and not trouble else 1


def _baseline(file: Path | None, update: bool, device: str) -> dict[str, Any] | None:
    """The baseline to hold a run against; ``Refused`` where there is none, or of another device."""
    from msnb.regression import baseline
    from msnb.regression.catalog import Refused

    if file is None:
        if update:
            raise Refused("--update-baseline needs --baseline FILE: where to write it")
        return None
    if update and not file.exists():
        return None
    try:
        former = baseline.read(file)
    except ValueError as error:
        raise Refused(str(error)) from None
    if former["device"] != device:
        raise Refused(
            f"--baseline {file} is of a run on {former['device']}, and this one would be on "
            f"{device}: each device has its own"
        )
    return former


def _hold(
    found: "Results", former: dict[str, Any] | None, file: Path | None, update: bool, *, whole: bool
) -> bool:
    """Hold a run against a baseline, print what moved and what to do; write the new one if asked.

    Returns whether all is as it was, or was written to be the new baseline.
    """
    from msnb.regression import baseline, moved
    from msnb.regression.upgrade import to_do

    if file is None:
        return True
    run = found.to_json()
    held = True
    try:
        if former is not None:
            names = [result.notebook for result in found.notebooks]
            changes = baseline.compare(former, run, None if whole else names)
            report = moved.to_report(f"against the baseline {file}", changes)
            _print_report(report)
            versions = former["versions"], found.environment.get("versions") or {}
            _print_lines(to_do(changes, *versions, baseline="" if update else str(file)))
            held = report.ok
        if update:
            new = baseline.make(run)
            if former is not None and not whole:
                new = baseline.merge(former, new)
            baseline.write(file, new)
            print(f"the new baseline: {file}")
            held = True
    except (OSError, ValueError) as error:
        print(f"the baseline was not written: {error}" if update else error, file=sys.stderr)
        return False
    return held


def _print_lines(lines: list[str]) -> None:
    if lines:
        print("what to do:")
    for line in lines:
        print(f"  {line}")


def _pages(found: "Results", folder: Path) -> str:
    """Write the pages for people and for CI; returns what went wrong, empty where nothing did."""
    from msnb.regression import junit, page

    try:
        junit.write(found, folder)
        page.write(found, folder)
    except OSError as error:
        return f"the report cannot be written: {error.strerror}: {error.filename or folder}"
    return ""


def _report(run: Path, later: Path | None, json: bool) -> int:
    from msnb.regression import moved
    from msnb.regression.results import Results
    from msnb.regression.upgrade import to_do

    try:
        found = [Results.read(folder) for folder in (run, later) if folder is not None]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if later is None:
        folder = run if run.is_dir() else run.parent
        report = found[0].to_report()
        _print_report(report, json)
        if trouble := _pages(found[0], folder):
            print(trouble, file=sys.stderr)
            return 1
        print(folder / "report.html", file=sys.stderr)
        return 0 if found[0].ok else 1
    changes = moved.runs(*(results.to_json() for results in found))
    report = moved.to_report(f"moved from {run} to {later}", changes)
    _print_report(report, json)
    if not json:
        versions = [results.environment.get("versions") or {} for results in found]
        _print_lines(to_do(changes, versions[0], versions[1]))
    return 0 if report.ok else 1


def _matrix(named: list[Path]) -> int:
    from msnb.regression import catalog, matrix

    try:
        notebooks = catalog.find_folder()
        base = notebooks.parent
        folders = sorted(path for path in (base / "baselines").glob("*") if path.is_dir())
        known = {path.resolve() for path in folders}
        folders += [path for path in named if path.resolve() not in known]
        names = [path.stem for path in notebooks.glob("[0-9]*.ipynb")]
        pages, bad = matrix.write(folders, names, base / "docs")
    except (catalog.Refused, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        print("nothing was written", file=sys.stderr)
        return 2
    for sentence in bad:
        print(f"left out: {sentence}", file=sys.stderr)
    print(*pages, sep="\n")
    return 1 if bad else 0


def _print_report(report: "Report", json: bool = False) -> None:
    import shutil
    from json import dumps

    if json:
        print(dumps(report.to_json(), ensure_ascii=False, indent=1))
        return
    live = sys.stdout.isatty()
    width = shutil.get_terminal_size((100, 24)).columns if live else 100
    print(report.text(width=width, colour=live and not os.environ.get("NO_COLOR")))


if __name__ == "__main__":
    main()

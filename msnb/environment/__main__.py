"""``python -m msnb.environment``: the doctor with the standard library alone."""

from __future__ import annotations

from msnb.environment import _StandardLibraryFirst, check_rank_table, examine, look

with _StandardLibraryFirst():
    import argparse
    import io
    import json
    import os
    import shutil
    import sys
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from msnb.report import Check, Report
    from msnb.targets import canonical_target

FIT, UNFIT, COULD_NOT_LOOK = 0, 1, 2
_ALONE = ("rank_table", "against", "for_bug_report")  # each answers a question of its own


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the doctor's table; 0 where fit, 1 unfit for the target, 2 where it cannot tell."""
    parser = argparse.ArgumentParser(
        prog="msnb doctor",
        description="Is this environment fit? One row a fact: found, expected, what to type.",
        epilog="exit code: 0 fit, 1 unfit for the target, 2 could not look",
    )
    parser.add_argument(
        "--device-target", default="CPU", metavar="T", help="CPU, Ascend, GPU or auto"
    )
    parser.add_argument(
        "--json", action="store_true", help="the report and its facts as JSON, with full paths"
    )
    parser.add_argument(
        "--fix",
        action="store_true",
        help="register the kernelspec msnb and link .venv, for Ascend write what CANN's set_env.sh "
        "sets into kernel.json and .env, then look",
    )
    parser.add_argument(
        "--root", default="/", metavar="DIR", help="look for CANN, driver, firmware below DIR"
    )
    parser.add_argument(
        "--rank-table", metavar="FILE", help="judge this rank table for HCCL, and nothing else"
    )
    parser.add_argument(
        "--against",
        metavar="FILE",
        help="what differs from the environment in FILE, which --json or a run wrote; "
        "exit code: 0 nothing, 1 something, 2 could not compare",
    )
    parser.add_argument(
        "--for-bug-report",
        action="store_true",
        help="one block to paste, without names of users and hosts, addresses and secrets",
    )
    options = parser.parse_args(arguments)
    alone = [f"--{name.replace('_', '-')}" for name in _ALONE if getattr(options, name)]
    with_them = ["--fix"] if options.fix and alone != ["--for-bug-report"] else []
    with_them += ["--json"] if options.json and alone == ["--for-bug-report"] else []
    if len(alone) > 1 or (alone and with_them):
        parser.error(f"not together: {', '.join(alone + with_them)}")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path that the encoding lacks
    try:
        return _act(options)
    except FileNotFoundError as error:
        gone = "the working folder is gone: change into another one"
        print(f"msnb doctor: {error if _has_folder() else gone}", file=sys.stderr)
    except (OSError, ValueError) as error:
        print(f"msnb doctor: {error}", file=sys.stderr)
    return COULD_NOT_LOOK


def _act(options: argparse.Namespace) -> int:
    if options.rank_table is not None:
        report = check_rank_table(options.rank_table, root=options.root)
        return _show(report, report.to_json() if options.json else None)
    if options.against is not None:
        return _compare(options)
    if options.fix:
        _fix(options)
    paths = "full" if options.json or options.for_bug_report else "short"
    report, facts = look(options.device_target, paths=paths, root=options.root)
    if options.for_bug_report:
        _print(_bug_report(report, facts))
        return exit_code(report.worst, report.ok)
    return _show(report, {**report.to_json(), "facts": facts} if options.json else None)


def _compare(options: argparse.Namespace) -> int:
    """What differs from another environment: 0 nothing, 1 something."""
    from msnb.environment import facts as gathering
    from msnb.regression import moved

    before = moved.read(Path(options.against))
    target = canonical_target(options.device_target)
    # a table without facts can only be compared with another one, for which all is tried
    tried = "checks" in before and "facts" not in before
    facts = gathering.gather(target, root=options.root, probe=tried)
    now = {**(examine(facts).to_json() if tried else {}), "facts": facts}
    changes = moved.environment(before, now)
    report = moved.to_report(f"against {os.path.basename(options.against)}", changes)
    _show(report, report.to_json() if options.json else None)
    return UNFIT if changes else FIT


def _fix(options: argparse.Namespace) -> None:
    from msnb.environment import ascend, fix

    script = None
    if canonical_target(options.device_target) == "Ascend":
        scripts = ascend.gather(options.root, None, ask=False)["set_env"]
        if not scripts:
            raise ValueError(
                "no set_env.sh of CANN was found, so its variables cannot be written; nothing was "
                "changed. Install CANN, or type: export ASCEND_HOME_PATH=...  # where it is"
            )
        script = ascend.below(Path(options.root), scripts[0])
    for line in fix.apply(set_env=script):
        print(line, file=sys.stderr if options.json or options.for_bug_report else sys.stdout)


def _bug_report(report: Report, facts: dict[str, Any]) -> str:
    from msnb import __version__
    from msnb.environment.scrub import scrubbed

    # row by row, before the table breaks lines and with them what is to be found
    rows = [
        Check(
            row.id,
            row.status,
            scrubbed(row.summary),
            scrubbed(row.found),
            scrubbed(row.expected),
            scrubbed(row.remedy),
        )
        for row in report
    ]
    python, installed = facts["python"], facts["distributions"]
    variables = {**facts["variables"], **facts["ascend"]["environment"]}
    versions = [f"{name} {about['version']}" for name, about in installed.items() if about]
    lines = [
        f"msnb {__version__}, Python {'.'.join(map(str, python['version']))}, "
        f"{python['platform']} {python['machine']}",
        ", ".join(versions),
        "",
        Report(report.title, rows).text(width=100),
    ]
    if variables:
        lines += ["", "variables:", *(f"  {name}={value}" for name, value in variables.items())]
    for name, probe in facts["probes"].items():
        if probe["end"] != "ok":
            lines += ["", f"{name}: {probe['end']}", probe["stderr"].strip()[-1500:]]
    fence = "`" * 3
    body = scrubbed("\n".join(lines)).replace(fence, "'" * 3)
    return f"{fence}text\n{body}\n{fence}"


def _show(report: Report, record: dict[str, Any] | None) -> int:
    """Print the table, or ``record`` as JSON; the exit code is that of the report."""
    if record is not None:
        _print(json.dumps(record, indent=1, ensure_ascii=False))
    else:
        live = sys.stdout.isatty()
        width = shutil.get_terminal_size((100, 24)).columns if live else 100
        colour = live and not os.environ.get("NO_COLOR")
        _print(report.text(width=width, colour=colour))
    return exit_code(report.worst, report.ok)


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # `msnb doctor | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _has_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def exit_code(worst: str, ok: bool) -> int:
    """The exit code that a report's worst status means."""
    if ok:
        return FIT
    return UNFIT if worst == "failed" else COULD_NOT_LOOK


if __name__ == "__main__":
    sys.exit(main())

"""``python -m msnb.environment``: the doctor with the standard library alone."""

from __future__ import annotations

from msnb.environment import _StandardLibraryFirst, check_rank_table, doctor

with _StandardLibraryFirst():
    import argparse
    import io
    import json
    import os
    import shutil
    import sys
    from collections.abc import Sequence

    from msnb.report import Report

FIT, UNFIT, COULD_NOT_LOOK = 0, 1, 2


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
    parser.add_argument("--json", action="store_true", help="the report as JSON, with full paths")
    parser.add_argument(
        "--fix", action="store_true", help="register the kernelspec msnb and link .venv, then look"
    )
    parser.add_argument(
        "--root", default="/", metavar="DIR", help="look for CANN, driver, firmware below DIR"
    )
    parser.add_argument(
        "--rank-table", metavar="FILE", help="judge this rank table for HCCL, and nothing else"
    )
    options = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path that the encoding lacks
    try:
        if options.rank_table is not None:
            report = check_rank_table(options.rank_table, root=options.root)
            return _show(report, options.json)
        if options.fix:
            from msnb.environment import fix

            for line in fix.apply():
                print(line, file=sys.stderr if options.json else sys.stdout)
        report = doctor(
            options.device_target, paths="full" if options.json else "short", root=options.root
        )
        return _show(report, options.json)
    except FileNotFoundError as error:
        gone = "the working folder is gone: change into another one"
        print(f"msnb doctor: {error if _has_folder() else gone}", file=sys.stderr)
        return COULD_NOT_LOOK
    except (OSError, ValueError) as error:
        print(f"msnb doctor: {error}", file=sys.stderr)
        return COULD_NOT_LOOK


def _show(report: Report, as_json: bool) -> int:
    try:
        if as_json:
            print(json.dumps(report.to_json(), indent=1, ensure_ascii=False), flush=True)
        else:
            live = sys.stdout.isatty()
            width = shutil.get_terminal_size((100, 24)).columns if live else 100
            colour = live and not os.environ.get("NO_COLOR")
            print(report.text(width=width, colour=colour), flush=True)
    except BrokenPipeError:  # `msnb doctor | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_code(report.worst, report.ok)


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

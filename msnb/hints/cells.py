"""A failing cell is followed by its hint."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from msnb.hints.explaining import best


def follow(wanted: bool) -> bool:
    """Switch hints below failing cells on or off; whether they are on afterwards.

    Outside of IPython there are no cells, and nothing happens.
    """
    core = sys.modules.get("IPython.core.getipython")
    shell = core.get_ipython() if core else None
    if shell is None:
        return False
    with contextlib.suppress(ValueError):  # it was not there
        shell.events.unregister("post_run_cell", _after)
    if wanted:
        shell.events.register("post_run_cell", _after)
    return wanted


def _after(result: Any) -> None:
    """Called by IPython once a cell has run, and its traceback, if any, has been shown."""
    error = getattr(result, "error_in_exec", None) or getattr(result, "error_before_exec", None)
    if error is None or not _is_wanted(error):
        return
    with contextlib.suppress(Exception):  # a hint must not add an error to an error
        if hint := best(error):
            _show(hint)


def _is_wanted(error: BaseException) -> bool:
    """Errors of msnb's own say what to type, and an interrupt needs no explanation."""
    own = type(error).__module__.partition(".")[0] == "msnb"
    return isinstance(error, Exception) and not own


def _show(hint: Any) -> None:
    from IPython.core.getipython import get_ipython

    if getattr(get_ipython(), "kernel", None) is None:  # in a terminal
        print(hint)
        return
    from IPython.display import display

    display(hint)

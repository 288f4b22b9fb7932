"""``setup()``: device, mode, seed, threads and a quiet log, in one call that can be repeated."""

# ruff: noqa: SIM112  (GLOG_v and its kind are spelt as MindSpore reads them)

from __future__ import annotations

import atexit
import contextlib
import ctypes
import difflib
import operator
import os
import platform
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from msnb.hints.cells import follow
from msnb.report import Check, Report
from msnb.targets import canonical_target

_MODES = ("graph", "pynative")  # at the index that is MindSpore's number for them
_REMEDY = {
    "Ascend": "source CANN's set_env.sh before the kernel starts, then: "
    "msnb doctor --device-target Ascend",
    "GPU": "have MindSpore's GPU build and CUDA in place before the kernel starts, then: "
    "msnb doctor --device-target GPU",
    "CPU": "msnb doctor",
}


class DeviceUnavailable(RuntimeError):
    """The device asked for is not there; the message holds the cause and the remedy."""


@dataclass(frozen=True, repr=False)
class Context:
    """What ``setup`` put in place; it shows itself as a small table.

    ``device_target`` is the device in use, ``asked`` what was asked for (``auto`` perhaps),
    ``threads`` the number that was set or ``None`` for MindSpore's default, ``versions`` maps a
    package's name to its version, ``notes`` says what could not be done in this process.
    """

    device_target: str
    asked: str
    device_id: int
    mode: str
    seed: int
    seeded: tuple[str, ...]
    threads: int | None
    deterministic: bool
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[tuple[str, str], ...] = ()

    def check(self) -> Check:
        """Whether the device in use *now* is the one asked for: the last cell requires it."""
        found, _ = _in_use(_mindspore())
        if self.asked == "auto":
            summary = f"{found} (auto chose {self.device_target})"
        else:
            summary = f"{found} (asked for {self.asked})"
        if found == self.device_target and self.asked in ("auto", found):
            return Check("device", "ok", summary, found=found)
        return Check(
            "device",
            "failed",
            summary,
            found=found,
            expected=self.device_target,
            remedy="restart the kernel and run msnb.setup() before anything else",
        )

    def warnings(self) -> Report:
        """What MindSpore's log of this process holds that is known to matter.

        One Check for each kind of message found, with its count; deprecations and messages that are
        known to be harmless, or not known at all, are counted and ok. Skipped, with the reason,
        where the log does not go to a file.
        """
        title = "MindSpore's log"
        if reason := _unreadable():
            return Report(title, [Check("log", "skipped", reason)])
        return _judge(title, _messages(Path(os.environ["GLOG_log_dir"]), os.getpid()))

    @property
    def report(self) -> Report:
        """The table."""
        rows = [
            self.check(),
            *(Check(name, "ok", version) for name, version in self.versions.items()),
            Check("mode", "ok", self.mode),
            Check("seed", "ok", f"{self.seed} ({', '.join(self.seeded)})"),
            Check("threads", "ok", str(self.threads or "MindSpore's default")),
            Check("deterministic", "ok", "yes" if self.deterministic else "no"),
            *(Check(id, "skipped", text) for id, text in self.notes),
        ]
        return Report("context", rows)

    def __str__(self) -> str:
        return str(self.report)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return self.report._repr_mimebundle_()


def setup(
    device_target: str = "CPU",
    mode: str = "pynative",
    seed: int = 0,
    *,
    device_id: int | None = None,
    deterministic: bool = False,
    threads: int | None = None,
    hints: bool = True,
) -> Context:
    """Put device, mode, seed, threads and log in place; repeatable in a live kernel.

    ``device_target`` is ``CPU``, ``Ascend``, ``GPU`` (any case) or ``auto``, the best device that
    is there; ``mode`` is ``pynative`` or ``graph``; ``seed`` (0 to 2**32 - 1) seeds Python, NumPy,
    MindSpore and, where loaded, torch. Set it before layers are built: those built earlier keep
    their weights and their Dropout. ``device_id`` comes from the argument, else from the variable
    ``DEVICE_ID``; a CPU has none. ``deterministic=True`` makes training bitwise repeatable; on CPU
    that takes one thread. Called before MindSpore is imported, unless ``GLOG_v`` is set, it sends
    MindSpore's log to a temporary folder that ``Context.warnings()`` reads. In a notebook a failing
    cell is from then on followed by what its error means, where that is known; ``hints=False``
    turns that off.

    Raises ``DeviceUnavailable`` where the device is not there (there is no fallback),
    ``ValueError`` or ``TypeError`` for a wrong argument or a variable GLOG_... that MindSpore does
    not take, ``RuntimeError`` for what this process has fixed already and only a restart of the
    kernel can change.

    >>> context = setup("cpu", seed=1)  # doctest: +SKIP
    >>> context.device_target, context.check().status  # doctest: +SKIP
    ('CPU', 'ok')
    """
    asked = canonical_target(device_target)
    mode = _mode(mode)
    seed = _whole("seed", seed, 0, 2**32 - 1)
    if threads is not None:
        threads = _whole("threads", threads, 1, 4096)
    if not isinstance(deterministic, bool):
        raise TypeError(f"deterministic is True or False, not {deterministic!r}")
    if not isinstance(hints, bool):
        raise TypeError(f"hints is True or False, not {hints!r}")
    follow(hints)  # first: a device that is not there is an error, too
    number = _device_number(device_id)
    notes: list[tuple[str, str]] = []

    early = "mindspore" not in sys.modules
    if early:
        _quiet()
        _check_log_settings()
    _tidy()
    ms = _mindspore()
    _mute_stderr(ms)
    _widen_stderr()
    if reason := _unreadable():
        notes.append(("log", reason))

    target = _best(ms) if asked == "auto" else asked
    if target == "CPU":
        if device_id is not None:
            notes.append(("device_id", f"a CPU has no number: device_id={device_id} is not used"))
        number = None
    _use(ms, target, number)
    found, used = _in_use(ms)
    if found != target or (number is not None and used != number):
        raise RuntimeError(
            f"asked for {_label(target, number)}, but MindSpore uses {_label(found, used)}; "
            "restart the kernel and run msnb.setup() before anything else"
        )

    ms.set_context(mode=_MODES.index(mode))
    if deterministic and target == "CPU":
        if threads not in (None, 1):
            raise ValueError(
                f"deterministic=True takes one thread on CPU, but threads={threads}: "
                "leave threads out, or give up one of the two"
            )
        threads = 1
    threads = _set_threads(ms, threads, deterministic and target == "CPU", notes)
    if deterministic:
        _set_deterministic(ms)
    elif _is_deterministic(ms):
        deterministic = True
        notes.append(
            ("still deterministic", "it was switched on in this process and stays on until restart")
        )
    seeded = _seed(ms, seed)

    versions = {"MindSpore": str(ms.__version__), "Python": platform.python_version()}
    if torch := _torch():
        versions["torch"] = str(torch.__version__)
    return Context(
        device_target=found,
        asked=asked,
        device_id=used,
        mode=mode,
        seed=seed,
        seeded=seeded,
        threads=threads,
        deterministic=deterministic,
        versions=versions,
        notes=tuple(notes),
    )


# Arguments


def _mode(asked: object) -> str:
    word = asked.strip().lower() if isinstance(asked, str) else ""
    if word in _MODES:
        return word
    if word == "jit":
        raise ValueError(
            "mode='jit': jit is no mode of the context; decorate the function with ms.jit and "
            "leave mode='pynative', or compile everything with mode='graph'"
        )
    near = difflib.get_close_matches(word.removesuffix("_mode"), _MODES, 1)
    hint = f"did you mean {near[0]!r}? It" if near else "it"
    raise ValueError(f"mode={asked!r}: {hint} is 'pynative' or 'graph'")


def _whole(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is a whole number, not {value!r}")
    number = operator.index(value)  # NumPy's integers, too
    if not low <= number <= high:
        raise ValueError(f"{name} is a whole number from {low} to {high}, not {number}")
    return number


def _device_number(argument: int | None) -> int | None:
    if argument is not None:
        return _whole("device_id", argument, 0, 4095)
    text = os.environ.get("DEVICE_ID")
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,4}", text.strip()):
        raise ValueError(
            f"the environment variable DEVICE_ID={text!r} is no device number (0, 1, 2, ...); "
            "correct or unset it, or give msnb.setup(device_id=...)"
        )
    return int(text)


# Device


def _mindspore() -> Any:
    try:
        import mindspore
    except ImportError as error:
        raise ImportError(
            f"MindSpore cannot be imported by {Path(sys.executable).name} of this environment "
            f"({error}); type: msnb doctor"
        ) from None
    return mindspore


def _label(target: str, number: int | None) -> str:
    return target if target == "CPU" or number is None else f"{target} {number}"


def _in_use(ms: Any) -> tuple[str, int]:
    if hasattr(ms, "get_current_device"):
        target, number = ms.get_current_device()
        return str(target), int(number)
    return str(ms.get_context("device_target")), int(ms.get_context("device_id"))


def _best(ms: Any) -> str:
    for target in ("Ascend", "GPU"):
        try:
            if getattr(ms.device_context, target.lower()).is_available():
                return target
        except (AttributeError, RuntimeError):
            continue
    return "CPU"


def _use(ms: Any, target: str, number: int | None) -> None:
    try:
        ms.set_device(target) if number is None else ms.set_device(target, number)
    except Exception as error:
        text = str(error)
    else:
        return
    if re.search(r"has been initialized|can ?not be modified", text):  # a live kernel
        now, used = _in_use(ms)
        if now == target and number in (None, used):
            return
        raise RuntimeError(
            f"this process already computes on {_label(now, used)} and cannot change to "
            f"{_label(target, number)}: restart the kernel, then run msnb.setup() first"
        )
    raise DeviceUnavailable(
        f"{_label(target, number)} is not available: {_cause(text, target)}\n"
        f"what to do: {_REMEDY[target]}"
    )


def _cause(text: str, target: str) -> str:
    """MindSpore's message, in one line: the library that is missing, or its first sentence."""
    missing = re.search(
        rf"library: (lib\w*{target.lower()}\S*) failed\. (\S+: cannot open shared object file)",
        text,
    )
    if missing:
        return f"{missing[2]} (needed by {missing[1]})"
    if offered := re.search(r"only supports one of the \[([^]]*)\]", text):
        return f"this MindSpore process offers only {offered[1]}".replace("'", "")
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")


# Threads, determinism, seeds


_threads: int | None = None  # what this process has fixed: MindSpore takes it once


def _set_threads(
    ms: Any, wanted: int | None, needed: bool, notes: list[tuple[str, str]]
) -> int | None:
    global _threads
    if wanted is None:
        return _threads
    if torch := _torch():
        torch.set_num_threads(wanted)
    if wanted == _threads:
        return wanted
    try:
        ms.device_context.cpu.op_tuning.threads_num(wanted)
    except (AttributeError, RuntimeError) as error:
        now = "another number" if _threads is None else str(_threads)
        if needed:
            raise RuntimeError(
                f"deterministic=True takes one thread, and this process has fixed {now}; restart "
                "the kernel and run msnb.setup(..., deterministic=True) first"
            ) from None
        reason = "MindSpore takes it once a process" if "repeatedly" in str(error) else str(error)
        notes.append(("threads kept", f"{now}, not {wanted}: {reason.splitlines()[0]}"))
        return _threads
    _threads = wanted
    return wanted


def _is_deterministic(ms: Any) -> bool:
    return str(ms.get_context("deterministic")) == "ON"


def _set_deterministic(ms: Any) -> None:
    if _is_deterministic(ms):
        return
    try:
        ms.set_deterministic(True)
    except RuntimeError:
        raise RuntimeError(
            "deterministic=True: this process has called ms.set_deterministic(False), and "
            "MindSpore takes it once; restart the kernel and run "
            "msnb.setup(..., deterministic=True) first"
        ) from None


def _torch() -> Any:
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "manual_seed") else None


def _seed(ms: Any, seed: int) -> tuple[str, ...]:
    random.seed(seed)
    ms.set_seed(seed)  # NumPy's global generator, too
    if hasattr(ms, "manual_seed"):
        ms.manual_seed(seed)  # the default generator of mint
    names = ["Python", "NumPy", "MindSpore"]
    if torch := _torch():
        torch.manual_seed(seed)
        names.append("torch")
    return tuple(names)


# The log: quiet, not deaf


def _quiet() -> None:
    """Send MindSpore's log to files; what the user has set stays as it is."""
    if "GLOG_v" in os.environ:
        return
    os.environ["GLOG_v"] = "2"
    os.environ.setdefault("GLOG_logtostderr", "0")
    os.environ.setdefault("GLOG_stderrthreshold", "4")
    if not os.environ.get("GLOG_log_dir"):
        os.environ["GLOG_log_dir"] = _scratch()


def _check_log_settings() -> None:
    """Refuse what MindSpore ends the whole process for when it is imported (or raises)."""
    wrong = [
        f"{name}={os.environ[name]} is no level (0, 1, 2, 3 or 4)"
        for name in ("GLOG_v", "GLOG_stderrthreshold")
        if os.environ.get(name, "2") not in {"0", "1", "2", "3", "4"}
    ]
    folder = os.environ.get("GLOG_log_dir", "")
    if os.environ.get("GLOG_logtostderr") == "0":
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            reason = error.strerror if folder else "with GLOG_logtostderr=0 it names a folder"
            wrong.append(f"GLOG_log_dir={folder}: {reason}")
    if wrong:
        raise ValueError(
            f"MindSpore cannot be imported with {'; '.join(wrong)}: correct or unset what is wrong "
            "there, then restart the kernel"
        )


def _tidy() -> None:
    """Keep what MindSpore writes when a graph does not compile (``rank_0/om``) out of sight."""
    if "MS_OM_PATH" not in os.environ:
        os.environ["MS_OM_PATH"] = _scratch()


@cache
def _scratch() -> str:
    """A folder of this process, removed when it ends."""
    folder = tempfile.mkdtemp(prefix="msnb-log-")
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a fork
        shutil.rmtree(folder, ignore_errors=True)


def _mute_stderr(ms: Any) -> None:
    """Do what ``GLOG_stderrthreshold=4`` asks for.

    MindSpore 2.10 does not: its C++ warnings reach stderr at every value of the variable (0 to 4),
    because the flag in its glog library stays at 1, WARNING. So the flag is set here.
    """
    if os.environ.get("GLOG_stderrthreshold") != "4" or _unreadable():
        return
    for library in Path(ms.__file__ or "").parent.glob("lib/lib*glog.so*"):  # both names are in use
        try:
            flag = ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "_ZN3fLI21FLAGS_stderrthresholdE")
        except (OSError, ValueError):
            continue
        flag.value = 4


def _widen_stderr() -> None:
    """Let a notebook's kernel take more of MindSpore's log before it hangs.

    A kernel's stderr is a pipe of 64 KB, which a thread of Python's empties. MindSpore compiles,
    and logs as it does, without giving the interpreter up: when the pipe is full, both wait for
    ever. A process without privileges may have 1 MB (``fs.pipe-max-size``).
    """
    with contextlib.suppress(ImportError, OSError):  # not on Linux; stderr is no pipe, or closed
        from fcntl import F_SETPIPE_SZ, fcntl

        fcntl(2, F_SETPIPE_SZ, 1 << 20)


def _unreadable() -> str:
    """Why the log of this process cannot be read; empty where it can."""
    level = os.environ.get("GLOG_v")
    to_file = os.environ.get("GLOG_logtostderr") == "0" and os.environ.get("GLOG_log_dir")
    if level is None:
        return (
            "MindSpore was imported before msnb.setup() and has fixed where its log goes: to "
            "stderr, where nothing can be checked, and where a large graph hangs a notebook; call "
            "msnb.setup() before importing mindspore"
        )
    if not to_file and os.environ.get("GLOG_logtostderr") not in (None, "0"):
        shown = os.environ["GLOG_logtostderr"]
        return (
            f"GLOG_logtostderr={shown} was set before msnb.setup(), so MindSpore's log goes to "
            "stderr and is not checked; unset GLOG_logtostderr to have it checked"
        )
    if not to_file:
        return (
            f"GLOG_v={level} was set before msnb.setup(), so MindSpore's log is left as it is and "
            "not checked; unset GLOG_v to have it checked"
        )
    if level not in ("0", "1", "2"):
        return (
            f"GLOG_v={level} switches MindSpore's warnings off; unset GLOG_v to have them checked"
        )
    return ""


@dataclass(frozen=True)
class _Kind:
    id: str
    pattern: str
    status: Literal["ok", "failed"]
    meaning: str
    remedy: str = ""


_KINDS = (
    _Kind(
        "gradient stopped",
        r"gradient will be stopped from propagating(.*:(?P<line>\d+), )?[^\n]*"
        r"(\n\s*(?P<detail>\S[^\n]*))?",  # the line's text is missing for a notebook cell
        "failed",
        "compiled code left MindSpore (asnumpy, NumPy, item): gradients through it are zero",
        "compute that line with MindSpore operations; where the stop is meant, ops.stop_gradient",
    ),
    _Kind(
        "parameters not loaded",
        r"\d+ parameters in the 'net' are not loaded",
        "failed",
        "parameters of the net kept their old values, because the checkpoint lacks them",
        "compare the names: assert ms.load_param_into_net(net, parameters) == ([], [])",
    ),
    _Kind(
        "cast on load",
        r"The type of (?P<detail>\S+) in 'parameter_dict' is different from",
        "failed",
        "parameters were cast to the net's dtype while loading",
        "cast on purpose before loading, or load with strict_load=True",
    ),
    _Kind(
        "compiled again",
        r'The function "(?P<detail>[^"]+)".* has been compiled again',
        "failed",
        "the same function was compiled more than once: time is lost, results are right",
        "apply ms.jit once, outside the loop, and keep the compiled function",
    ),
    _Kind(
        "jit option ignored",
        r"For 'jit', the parameter '(?P<detail>mode|input_signature|jit_config|compile_once)'",
        "failed",
        "this option of ms.jit is accepted and deprecated; mode= has no effect at all",
        "use capture_mode= and the options of today's signature",
    ),
    _Kind(
        "side effects",
        r"Some side effect nodes were eliminated by mistake",
        "ok",
        "said of most compiled training steps; results are right all the same",
    ),
    _Kind(
        "notebook cells",
        r"Get realpath failed|The file '[^']*' may not exists",
        "ok",
        "MindSpore looked for the source of a notebook cell in a file; harmless",
    ),
    _Kind("deprecated", r"deprecated", "ok", "deprecated names or arguments were used"),
)
_NAMES = re.compile(r"\[(?P<names>'[^]]*)\] are not loaded\.")


def _messages(folder: Path, pid: int) -> Iterator[str]:
    """The records in the log files of process ``pid``, one by one."""
    files = [*folder.glob(f"rank_*/logs/mindspore.log.{pid}")]  # from Python
    files += folder.glob(f"rank_*/logs/mindspore.log.{pid}.*")  # rotated
    files += folder.glob(f"rank_*/logs/mindspore.*.log.WARNING.*.{pid}")  # from C++, and worse
    for file in sorted(files):
        text = file.read_text("utf-8", "replace")
        for record in re.split(r"^(?=\[[A-Z]+\] \w+\()", text, flags=re.MULTILINE):
            if record.startswith("["):
                yield record


def _judge(title: str, messages: Iterator[str]) -> Report:
    counts: dict[str, int] = {}
    details: dict[str, dict[str, None]] = {}
    other = 0
    for message in messages:
        if names := _NAMES.search(message):  # the second half of "parameters not loaded"
            details.setdefault("parameters not loaded", {})[names["names"].replace("'", "")] = None
            continue
        for kind in _KINDS:
            if match := re.search(kind.pattern, message):
                counts[kind.id] = counts.get(kind.id, 0) + 1
                groups = match.groupdict()
                detail = groups.get("detail") or (groups.get("line") and f"line {groups['line']}")
                if detail:
                    details.setdefault(kind.id, {})[detail.strip()] = None
                break
        else:
            other += 1
    checks = [
        Check(
            kind.id,
            kind.status,
            f"{_times(counts[kind.id])}: {kind.meaning}",
            found=_shorten(list(details.get(kind.id, {}))),
            expected="no such message" if kind.status == "failed" else "",
            remedy=kind.remedy,
            metrics={"count": counts[kind.id]},
        )
        for kind in _KINDS
        if kind.id in counts
    ]
    if other:
        said = f"{_times(other)}: messages that are not known to matter"
        checks.append(Check("other", "ok", said, metrics={"count": other}))
    if not checks:
        checks.append(Check("log", "ok", "MindSpore warned of nothing"))
    return Report(title, checks)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _shorten(details: list[str]) -> str:
    more = f"; and {len(details) - 4} more" if len(details) > 4 else ""
    return "; ".join(details[:4]) + more

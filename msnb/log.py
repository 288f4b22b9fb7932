"""What a training run did: a line per step, on screen and on disk."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import stat
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from types import TracebackType

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Columns = dict[str, NDArray[Any]]
    Source: TypeAlias = "TrainLog | str | os.PathLike[str] | Mapping[str, NDArray[Any]]"

_HEAD = b'{"run":'  # how every line begins
_COLUMNS = ("run", "step", "epoch", "loss", "lr", "shapes", "dtypes", "seconds", "samples_per_s")
_RESERVED = frozenset({*_COLUMNS, "batch", "nonfinite"})


class NonFiniteLoss(FloatingPointError):
    """The loss became NaN or infinite; ``step`` and ``loss`` say where and what.

    Raised by ``TrainLog(path, stop_on_nonfinite=True).step(...)``, after the line was written.

    >>> NonFiniteLoss("loss is nan at step 3", step=3, loss=float("nan")).step
    3
    """

    def __init__(self, message: str, *, step: int, loss: float) -> None:
        super().__init__(message)
        self.step = step
        self.loss = loss


class TrainLog:
    """A line per training step: readable on stdout, JSON in the file ``path``.

    The file gets every step, handed to the operating system before ``step`` returns, so it is
    complete after ``kill -9``. Opening it again appends under a new run id. Missing folders are
    made. ``every=N`` shows the first step, each N-th, and any in which a number stops being
    finite; 0 shows only the last kind. ``on_step(record)`` is called with the line as a dict, after
    it was written.
    ``stop_on_nonfinite=True`` raises ``NonFiniteLoss`` at a NaN or infinite loss.

    A line holds run, step, epoch, loss, lr, shapes, dtypes, seconds, samples_per_s and the extra
    numbers of ``step``; it is strict JSON, so NaN and infinities are the strings "nan", "inf" and
    "-inf", and ``nonfinite`` then lists the names they came under.

    Raises ``OSError`` at once, before any training, where the file cannot be written, and
    ``ValueError`` where it exists and is not a training log.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with TrainLog(f"{folder}/train.jsonl") as log:
    ...         log.step(loss=2.3026, lr=0.01, epoch=1, acc=0.125)
    ...         log.step(loss=2.1972, lr=0.01, epoch=1, acc=0.250)
    ...     TrainLog.read(log.path)["loss"]
    step 1  epoch 1  loss 2.3026  lr 0.01  acc 0.125
    step 2  epoch 1  loss 2.1972  lr 0.01  acc 0.25
    array([2.3026, 2.1972])
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        every: int = 1,
        on_step: Callable[[dict[str, Any]], object] | None = None,
        *,
        stop_on_nonfinite: bool = False,
    ) -> None:
        if not isinstance(every, int) or isinstance(every, bool) or every < 0:
            raise ValueError(f"every is 1 (show each step), 10, 100 or 0 (none), not {every!r}")
        if on_step is not None and not callable(on_step):
            raise TypeError(f"on_step is a function of one record (a dict), not {on_step!r}")
        self.path = _as_path(path)
        self.run = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{os.urandom(3).hex()}"
        self._every = every
        self._on_step = on_step
        self._stop = stop_on_nonfinite
        self._step = 0
        self._lines = 0
        self._odd: set[str] = set()  # what was not finite in the step before
        self._file = _open(self.path)
        self._torn = _ends_torn(self._file, self.path)
        self._end = 0  # the size of the file after this run's last line
        self._mark = time.perf_counter()

    def step(
        self,
        *,
        loss: Any,
        lr: Any = None,
        batch: Any = None,
        epoch: float | None = None,
        step: int | None = None,
        seconds: float | None = None,
        **extra: Any,
    ) -> None:
        """Write the line of one training step; call it after the optimizer's step.

        ``loss``: one number: a float, or an array or tensor (NumPy, MindSpore, PyTorch) of one
        element, of any shape. Reading a tensor waits for the device; the time counts.

        ``lr``: the rate *used for this step*: a number or tensor, a list of them (one per parameter
        group), a schedule (called with the number of steps before this one, so 0 at first), or the
        optimizer. Prefer the optimizer where MindSpore's ``learning_rate`` is a list or a schedule:
        after the step ``optimizer.get_lr()`` is already the next one's. With PyTorch, call this
        before ``scheduler.step()``.

        ``batch``: arrays or tensors in a tuple, list or dict: their shapes and dtypes are written;
        samples/s counts the first one's leading dimension.

        ``step`` counts on from 1 unless given; it does not go back. ``seconds`` is the time since
        the previous call (the first time, since the log was opened), so a validation pass in
        between counts to the step after it; give your own measurement where that is wrong.
        ``extra`` are further numbers.

        Raises ``TypeError`` or ``ValueError`` for what is not one number, ``OSError`` where the
        line cannot be written (those before it are safe), ``NonFiniteLoss`` where asked for, and
        ``RuntimeError`` where ``on_step`` raised; the last two after the line was written.

        >>> log = TrainLog(os.devnull, every=0)
        >>> log.step(loss=2.3, lr=[0.1, 0.01], step=7)
        >>> log.step(loss=float("nan"))
        step 8  loss nan  NOT FINITE: loss
        """
        if self._file.closed:
            raise ValueError(f"the training log {str(self.path)!r} is closed; open a new TrainLog")
        number = self._step + 1 if step is None else _whole("step", step)
        if number < self._step:
            raise ValueError(
                f"step {number} after step {self._step}: the steps of a run do not go back; open a "
                "new TrainLog for a new run (it may be in the same file)"
            )
        if clash := _RESERVED & extra.keys():
            raise ValueError(
                f"{min(clash)!r} is a field of every line already; give the number another name"
            )
        value = float(_number("loss", loss))
        now = time.perf_counter()  # after the loss: reading it waited for the device
        rate = None if lr is None else _rate(lr, max(number - 1, 0))
        shapes, dtypes = _describe(batch)
        samples = None if batch is None else _samples(shapes)
        took = now - self._mark if seconds is None else float(_number("seconds", seconds))
        if took < 0:
            raise ValueError(f"seconds is the time a step took, 0 or more, not {seconds!r}")
        record: dict[str, Any] = {
            "run": self.run,
            "step": number,
            "epoch": None if epoch is None else _number("epoch", epoch),
            "loss": value,
            "lr": rate,
            "shapes": shapes,
            "dtypes": dtypes,
            "seconds": round(took, 6),
            "samples_per_s": round(samples / took, 3) if samples is not None and took > 0 else None,
        }
        for name, given in extra.items():
            record[name] = _number(name, given)
        odd = [name for name, entry in record.items() if not _finite(entry)]
        if odd:
            record["nonfinite"] = odd
        self._step = number
        try:
            self._emit(record, odd, extra)
            self._odd = set(odd)
            failed = self._call_hook(record)
        finally:
            self._mark = time.perf_counter()
        if self._stop and not math.isfinite(value):
            raise NonFiniteLoss(
                f"loss is {value} at step {number}: stopped; the line is in {str(self.path)!r}",
                step=number,
                loss=value,
            ) from failed
        if failed is not None:
            raise RuntimeError(
                f"on_step failed at step {number} with {type(failed).__name__}: {failed}; "
                f"the line is in {str(self.path)!r}"
            ) from failed

    def _emit(self, record: dict[str, Any], odd: list[str], extra: Mapping[str, Any]) -> None:
        number = record["step"]
        line = json.dumps(_strict(record) if odd else record, allow_nan=False) + "\n"
        shown = self._lines == 0 or (self._every and number % self._every == 0)
        try:
            self._write(line.encode())
        except OSError as error:
            print(_readable(record, odd, extra))
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            raise OSError(
                error.errno,
                f"step {number} could not be written to {str(self.path)!r}: "
                f"{_reason(error)}; the lines of this run before it are safe: {self._lines}"
                + ("; free some space, and the log can go on" if full else ""),
            ) from None
        self._lines += 1
        if (self._every and shown) or set(odd) - self._odd:
            # A pipe or a file would show the line much later; a kernel's stream flushes itself.
            print(_readable(record, odd, extra), flush=isinstance(sys.stdout, io.TextIOWrapper))

    def _write(self, line: bytes) -> None:
        state = os.fstat(self._file.fileno())
        if state.st_nlink == 0:
            warnings.warn(
                f"the training log {str(self.path)!r} was deleted: started again; the "
                f"{self._lines} lines of this run so far are gone",
                stacklevel=4,
            )
            self._file.close()
            self._file = _open(self.path)
            self._torn = _ends_torn(self._file, self.path)
            self._lines = 0
            state = os.fstat(self._file.fileno())
        elif stat.S_ISREG(state.st_mode) and state.st_size < self._end:
            warnings.warn(
                f"the training log {str(self.path)!r} was cut off at byte {state.st_size}: some or "
                f"all of the {self._lines} lines of this run so far are gone",
                stacklevel=4,
            )
            last = os.pread(self._file.fileno(), 1, max(state.st_size - 1, 0))
            self._torn = last not in (b"", b"\n")
            self._lines = 0
        data = b"\n" + line if self._torn else line
        torn, self._torn = self._torn, True
        done = 0
        try:
            while done < len(data):
                done += os.write(self._file.fileno(), data[done:])
        except OSError:
            # Cut off the half line, unless another run has written behind it.
            if not stat.S_ISREG(state.st_mode) or done == 0:
                self._torn = torn
            elif os.fstat(self._file.fileno()).st_size == state.st_size + done:
                os.ftruncate(self._file.fileno(), state.st_size)
                self._torn = torn
            raise
        self._torn = False
        self._end = os.fstat(self._file.fileno()).st_size

    def _call_hook(self, record: dict[str, Any]) -> Exception | None:
        if self._on_step is not None:
            try:
                self._on_step(record)
            except Exception as error:
                return error
        return None

    def close(self) -> None:
        """Close the file; closing twice does no harm.

        >>> log = TrainLog(os.devnull)
        >>> log.close()
        """
        self._file.close()

    def __enter__(self) -> TrainLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def __repr__(self) -> str:
        return f"<TrainLog {str(self.path)!r}, run {self.run}, {self._lines} lines>"

    def _position(self) -> dict[str, Any]:
        """Where the file ends now; for a checkpoint, to which ``_rewind`` goes back."""
        size = os.fstat(self._file.fileno()).st_size
        return {"run": self.run, "step": self._step, "lines": self._lines, "bytes": size}

    def _check_rewind(self, position: Mapping[str, Any]) -> None:
        """``ValueError`` unless the file can be cut back to ``position`` without losing others'."""
        name, end = str(self.path), int(position["bytes"])
        kept = os.pread(self._file.fileno(), end, 0)
        last = kept[:-1].rpartition(b"\n")[2] or b"{}"
        record = json.loads(last) if kept.endswith(b"\n") and last.startswith(_HEAD) else {}
        fits = len(kept) == end and (record.get("run"), record.get("step")) == (
            position["run"],
            position["step"],
        )
        if position["lines"] and not fits:
            raise ValueError(
                f"{name!r} is not the log of the checkpoint, or was changed since: it has no line "
                f"of step {position['step']} of run {position['run']} at byte {end}"
            )
        rest = os.pread(self._file.fileno(), os.fstat(self._file.fileno()).st_size - end, end)
        mine = _HEAD + b" " + json.dumps(position["run"]).encode() + b","
        for line in rest.split(b"\n"):
            if line and not (line.startswith(mine) or mine.startswith(line)):
                raise ValueError(
                    f"{name!r} has lines of another run after the checkpoint's last, which cutting "
                    "it back would lose; give a copy of it, or a new log and no log here"
                )

    def _rewind(self, position: Mapping[str, Any]) -> None:
        """Cut off what was written after ``position``, and go on from there as the same run."""
        if stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            os.ftruncate(self._file.fileno(), int(position["bytes"]))
        self.run, self._step = str(position["run"]), int(position["step"])
        self._lines, self._torn, self._odd = int(position["lines"]), False, set()
        self._end = int(position["bytes"])
        self._mark = time.perf_counter()

    @staticmethod
    def runs(path: str | os.PathLike[str]) -> list[str]:
        """The run ids in a log, the oldest first; raises as ``read`` does.

        >>> TrainLog.runs("train.jsonl")  # doctest: +SKIP
        ['20261129T154003-9f31c2', '20261129T161250-04be77']
        """
        return list(dict.fromkeys(str(record["run"]) for record in _records(_as_path(path))))

    @staticmethod
    def read(path: str | os.PathLike[str], run: int | str = -1) -> Columns:
        """One run of a log as NumPy arrays by name: ``TrainLog.read(path)["loss"]``.

        ``run`` counts from 0, the oldest; the default, -1, is the last; or give a run id (see
        ``TrainLog.runs``). All arrays are as long as the run has lines; step is int64; epoch is
        int64 or, where it has gaps or fractions, float64; loss, lr, seconds, samples_per_s and
        extra numbers are float64, NaN where a line has none; lr is (lines, groups) where lists were
        given; run, shapes and dtypes are object arrays.

        A half line, left by a crash at the end of a run, is skipped; any other line that cannot be
        read is skipped with a warning that names it. Raises ``FileNotFoundError``, and
        ``ValueError`` where the file is not a training log, is empty, or has no such run.

        >>> data = TrainLog.read("train.jsonl")  # doctest: +SKIP
        >>> data["step"][data["loss"].argmin()]  # doctest: +SKIP
        412
        """
        source = _as_path(path)
        records = _records(source)
        runs = list(dict.fromkeys(str(record["run"]) for record in records))
        if isinstance(run, int) and -len(runs) <= run < len(runs):
            run = runs[run]
        if run not in runs:
            raise ValueError(
                f"{str(source)!r} has no run {run!r}; it has {len(runs)}: {', '.join(runs)}"
            )
        return _columns([record for record in records if record["run"] == run])

    def plot(self, *others: Source, labels: Sequence[str] | None = None) -> Figure:
        """Draw loss and lr over the steps, ``others`` over this one, as a matplotlib figure.

        This log's current run is drawn, or, where it has no line yet, the last one in the file.
        Others are TrainLogs, paths (their last run) or what ``TrainLog.read`` gave. ``labels``
        names each, this one first. Steps whose loss is not finite are marked at the top; from 100
        steps on a running mean is drawn over the single values; the loss axis is logarithmic where
        the values span more than a factor of 50.

        Raises ``ValueError`` where a log has nothing to draw, or labels are too many or too few.

        >>> torch_log.plot(ms_log, labels=["PyTorch", "MindSpore"])  # doctest: +SKIP
        <Figure size 800x500 with 2 Axes>
        """
        logs = [_source(log) for log in (self, *others)]
        names = _names(logs) if labels is None else [str(label) for label in labels]
        if isinstance(labels, str) or len(names) != len(logs):
            raise ValueError(f"{len(logs)} logs need {len(logs)} labels in a list, not {labels!r}")
        return _draw([data for _, data in logs], names)


def _as_path(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, (str, os.PathLike)) or not str(path).strip():
        raise ValueError(f"a training log needs a path such as 'runs/train.jsonl', not {path!r}")
    if "\0" in str(path):
        raise ValueError(f"a training log's path holds no NUL character, as {str(path)!r} does")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        user = str(path).split("/")[0]
        raise ValueError(
            f"there is no home folder for {user!r} in the path {str(path)!r}; write the path out"
        ) from None


def _open(path: Path) -> io.FileIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not (path.is_file() or path.is_dir() or path.is_char_device()):
            raise OSError(errno.EINVAL, "it is a pipe or a socket")
        file = open(path, "ab+", buffering=0)  # noqa: SIM115 (closed by close())
    except OSError as error:
        above = (p for p in path.parents if os.path.exists(p) and not os.path.isdir(p))
        file_as_folder = next(above, None)  # os.path: Path's own raise for a name too long
        if error.errno == errno.ENAMETOOLONG:
            why = "a name in it is too long; give a shorter one"
        elif path.is_dir():
            why = f"that is a folder; give a file in it, for example {str(path / 'train.jsonl')!r}"
        elif file_as_folder is not None:
            why = f"{str(file_as_folder)!r} is a file, not a folder; give another path"
        else:
            why = f"{_reason(error)}; give a path in a folder you may write to"
        raise OSError(error.errno, f"cannot write the training log {str(path)!r}: {why}") from None
    disk = os.statvfs(file.fileno())
    free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    if path.is_file() and disk.f_blocks and not free:
        file.close()
        raise OSError(
            errno.ENOSPC,
            f"cannot write the training log {str(path)!r}: the disk is full; free some space",
        )
    return file


def _ends_torn(file: io.FileIO, path: Path) -> bool:
    """Whether the last line lacks its end; ``ValueError`` where this is no training log."""
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        return False
    head = os.pread(file.fileno(), 80, 0)
    if not _HEAD.startswith(head[: len(_HEAD)]):
        file.close()
        start = head.split(b"\n")[0].decode(errors="replace")
        raise ValueError(
            f"{str(path)!r} exists and is not a training log (it begins with {start!r}); "
            "give another path"
        )
    return os.pread(file.fileno(), 1, size - 1) != b"\n"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _number(name: str, value: Any) -> float:
    """The one number in ``value``; float, or int where it is one."""
    if type(value) is float:
        return value
    given = value
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "item"):
        if math.prod(shape) != 1:
            raise ValueError(
                f"{name} is one number, not an array of shape {tuple(shape)}; "
                f"give for example {name}.mean()"
            )
        value = value.item()
    refused = isinstance(value, bool) and name in ("loss", "lr")
    if isinstance(value, (int, float)) and not refused:
        if isinstance(value, int) and abs(value) >= 2**63:
            raise ValueError(f"{name} is a number that 64 bits hold, and this one is not")
        return int(value) if isinstance(value, int) else value
    hint = ""
    if value is None:
        hint = "; did the function that should give it return nothing?"
    elif isinstance(value, (tuple, list)):
        hint = "; give one of its elements"
    shown = repr(given) if len(repr(given)) <= 60 else f"{repr(given)[:57]}..."
    raise TypeError(f"{name} is one number, not {type(given).__name__} {shown}{hint}")


def _whole(name: str, value: Any) -> int:
    number = _number(name, value)
    if not math.isfinite(number) or number != int(number) or not 0 <= number < 2**63:
        raise ValueError(f"{name} is a whole number, 0 or more, not {value!r}")
    return int(number)


def _rate(lr: Any, before: int) -> float | list[float]:
    """The rate used for the step that ``before`` steps preceded; a list for parameter groups."""
    if hasattr(lr, "param_groups"):  # a torch or mint optimizer
        lr = [group["lr"] for group in lr.param_groups]
    elif hasattr(lr, "learning_rate") and hasattr(lr, "global_step"):  # a mindspore.nn optimizer
        before = max(int(lr.global_step.asnumpy().reshape(-1)[0]) - 1, 0)
        lr = list(lr.learning_rate) if lr.is_group_lr else lr.learning_rate
    elif hasattr(lr, "get_last_lr"):
        raise TypeError(
            f"lr is the rate itself, not {type(lr).__name__}: give scheduler.get_last_lr() or the "
            "optimizer, before scheduler.step()"
        )
    if isinstance(lr, (list, tuple)):
        if not lr:
            raise ValueError("lr is an empty list; give one rate for each parameter group")
        rates = [_one_rate(rate, before) for rate in lr]
        return rates[0] if len(rates) == 1 else rates
    return _one_rate(lr, before)


def _one_rate(lr: Any, before: int) -> float:
    if not callable(lr):
        return float(_number("lr", lr))
    if any(base.__name__ == "LearningRateSchedule" for base in type(lr).__mro__):
        import mindspore

        return float(_number("lr", lr(mindspore.Tensor(before, mindspore.int32))))
    if hasattr(lr, "construct") or hasattr(lr, "forward"):
        raise TypeError(
            f"lr is a number, a schedule or the optimizer, not the network {type(lr).__name__}"
        )
    return float(_number("lr", lr(before)))


def _describe(batch: Any) -> tuple[Any, Any]:
    """Shapes and dtypes in the structure of ``batch``."""
    if batch is None:
        return None, None
    shape = getattr(batch, "shape", None)
    if shape is not None:
        name = str(getattr(batch, "dtype", type(batch).__name__))
        return [int(n) for n in shape], name.rsplit(".", 1)[-1].lower()
    if isinstance(batch, Mapping):
        described = {str(name): _describe(part) for name, part in batch.items()}
        return (
            {name: shape for name, (shape, _) in described.items()},
            {name: dtype for name, (_, dtype) in described.items()},
        )
    if isinstance(batch, (tuple, list)):
        if batch and isinstance(batch[0], (str, int, float)):  # names or plain labels
            return [len(batch)], type(batch[0]).__name__
        parts = [_describe(part) for part in batch]
        return [shape for shape, _ in parts], [dtype for _, dtype in parts]
    return [], type(batch).__name__


def _samples(shapes: Any) -> int | None:
    """The leading dimension of the first array."""
    parts = list(shapes.values()) if isinstance(shapes, dict) else shapes or []
    for part in parts:
        if isinstance(part, int):
            return part
        if part and (found := _samples(part)) is not None:
            return found
    return None


def _finite(value: Any) -> bool:
    if isinstance(value, list):
        return all(_finite(part) for part in value)
    return not isinstance(value, float) or math.isfinite(value)


def _strict(value: Any) -> Any:
    """The same with NaN and infinities as strings: JSON has no such numbers."""
    if isinstance(value, dict):
        return {name: _strict(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_strict(part) for part in value]
    return value if _finite(value) else str(value)


def _readable(record: Mapping[str, Any], odd: list[str], extra: Mapping[str, Any]) -> str:
    parts = [f"step {record['step']}"]
    if record["epoch"] is not None:
        parts.append(f"epoch {record['epoch']:g}")
    loss = record["loss"]
    plain = loss == 0 or 1e-3 <= abs(loss) < 1e5 or not math.isfinite(loss)
    parts.append(f"loss {loss:.4f}" if plain else f"loss {loss:.3e}")
    lr = record["lr"]
    if lr is not None:
        rates = lr if isinstance(lr, list) else [lr]
        parts.append(f"lr {', '.join(f'{rate:.4g}' for rate in rates)}")
    parts += [f"{name} {record[name]:.4g}" for name in extra]
    speed = record["samples_per_s"]
    if speed is not None:
        parts.append(f"{speed:.0f} samples/s" if speed >= 10 else f"{speed:.2g} samples/s")
    if odd:
        parts.append(f"NOT FINITE: {', '.join(odd)}")
    return "  ".join(parts)


def _records(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "there is no training log", str(path)) from None
    except IsADirectoryError:
        raise IsADirectoryError(
            errno.EISDIR, "a training log is a file, and this is a folder", str(path)
        ) from None
    records: list[dict[str, Any]] = []
    bad: list[tuple[int, int]] = []  # line number, records before it
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if _is_line(record):
            records.append(record)
        else:
            bad.append((number, len(records)))
    broken = [n for n, before in bad if not _torn_off(n, before, len(lines), records)]
    if not records:
        if broken:
            raise ValueError(
                f"{str(path)!r} is not a training log: line {broken[0]} begins with "
                f"{lines[broken[0] - 1][:60].decode(errors='replace')!r}"
            )
        raise ValueError(f"the training log {str(path)!r} has no complete line yet")
    for number in broken:
        warnings.warn(
            f"{str(path)!r}, line {number}: not a line of a training log, skipped: "
            f"{lines[number - 1][:60].decode(errors='replace')!r}",
            stacklevel=3,
        )
    return records


def _is_line(record: Any) -> bool:
    """Whether ``step`` can have written this; anything else would spoil the reading of the rest."""
    if not isinstance(record, dict) or not {"run", "step", "loss"} <= record.keys():
        return False
    step = record["step"]
    plain = type(record["run"]) is str and type(step) is int and abs(step) < 2**63
    text = ("run", "shapes", "dtypes", "nonfinite")
    numbers = {name: value for name, value in record.items() if name not in text}
    rates = numbers.pop("lr", None)
    each = [*numbers.values(), *(rates if isinstance(rates, list) else [rates])]
    return plain and all(
        value is None or type(value) in (int, float) or value in ("nan", "inf", "-inf")
        for value in each
    )


def _torn_off(number: int, before: int, lines: int, records: list[dict[str, Any]]) -> bool:
    """Whether a bad line is what a crash leaves: the end of the file, or of a run."""
    if before == len(records):
        return number == lines
    seen = {record["run"] for record in records[:before]}
    return bool(records[before]["run"] not in seen)


def _columns(records: list[dict[str, Any]]) -> Columns:
    import numpy as np

    def objects(values: list[Any]) -> NDArray[Any]:
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array

    columns: Columns = {}
    names = dict.fromkeys([*_COLUMNS, *(name for record in records for name in record)])
    names.pop("nonfinite", None)
    for name in names:
        values = [record.get(name) for record in records]
        if name in ("run", "shapes", "dtypes"):
            columns[name] = objects(values)
        elif name in ("step", "epoch") and all(isinstance(value, int) for value in values):
            columns[name] = np.array(values, dtype=np.int64)
        else:
            groups = max((len(value) for value in values if isinstance(value, list)), default=0)
            rows = [
                value if isinstance(value, list) else [value] * (groups or 1) for value in values
            ]
            table = np.full((len(rows), groups or 1), np.nan)
            for index, row in enumerate(rows):
                table[index, : len(row)] = [math.nan if n is None else float(n) for n in row]
            columns[name] = table if groups else table[:, 0]
    return columns


def _source(log: Source) -> tuple[Path | None, Columns]:
    if isinstance(log, TrainLog):
        return log.path, TrainLog.read(log.path, log.run if log._lines else -1)
    if isinstance(log, Mapping):
        if missing := [name for name in ("step", "loss", "lr", "run") if name not in log]:
            raise ValueError(f"columns to draw come from TrainLog.read(path); no {missing[0]!r}")
        return None, dict(log)
    path = _as_path(log)
    return path, TrainLog.read(path)


def _names(logs: list[tuple[Path | None, Columns]]) -> list[str]:
    runs = [str(data["run"][0]) for _, data in logs]
    names = [path.stem if path else run for (path, _), run in zip(logs, runs, strict=True)]
    return [
        name if names.count(name) == 1 or name == run else f"{name} {run}"
        for name, run in zip(names, runs, strict=True)
    ]


def _draw(logs: list[Columns], names: list[str]) -> Figure:
    import matplotlib.pyplot as plt
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    # Twins lie on each other: the first is wide, those above it narrow and broken.
    strokes = [("-", 3.2), ("--", 1.6), (":", 1.8), ("-.", 1.4)]
    with_lr = any(np.isfinite(data["lr"]).any() for data in logs)
    ratios = [3, 1] if with_lr else [1]
    figure: Figure
    figure, grid = plt.subplots(
        len(ratios),
        1,
        sharex=True,
        squeeze=False,
        figsize=(8, 5) if with_lr else (8, 4),
        height_ratios=ratios,
        layout="constrained",
    )
    plt.close(figure)  # or a notebook would show it twice: as a plot and as the cell's value
    top, bottom = grid[0, 0], grid[-1, 0]
    finite = np.concatenate([data["loss"][np.isfinite(data["loss"])] for data in logs])
    mean_of = marked = 0
    for index, (data, name) in enumerate(zip(logs, names, strict=True)):
        style, width = strokes[index % len(strokes)]
        look = {"color": f"C{index % 10}", "linestyle": style, "linewidth": width}
        step, loss = data["step"], data["loss"]
        good = np.isfinite(loss)
        dots = "o" if len(step) <= 30 else ""
        shown = np.where(good, loss, np.nan)
        if len(step) >= 100:
            window = mean_of = min(max(len(step) // 50, 5), 200) | 1  # odd: as far back as ahead
            top.plot(step, shown, color=look["color"], linewidth=0.8, alpha=0.3)
            top.plot(step, _running_mean(shown, window), label=name, **look)
        else:
            top.plot(step, shown, label=name, marker=dots, markersize=4, **look)
        if bad := int((~good).sum()):
            top.plot(  # a row of marks for each log
                step[~good],
                np.full(bad, 0.97 - 0.05 * marked),
                "x",
                color=look["color"],
                markersize=8,
                markeredgewidth=2,
                transform=top.get_xaxis_transform(),
                label=f"{name}: not finite ({bad} {'step' if bad == 1 else 'steps'})",
            )
            marked += 1
        if with_lr:
            for rates in np.atleast_2d(data["lr"].T):
                bottom.plot(step, rates, marker=dots, markersize=3, **look)
    logarithmic = len(finite) > 0 and finite.min() > 0 and finite.max() > 50 * finite.min()
    if logarithmic:
        top.set_yscale("log")
    top.margins(y=0.12)  # room for the marks
    top.set_ylabel("loss (log scale)" if logarithmic else "loss")
    if not len(finite):
        top.set_yticks([])
    if with_lr:
        bottom.set_ylabel("learning rate")
        bottom.set_ylim(bottom=min(0.0, bottom.get_ylim()[0]))
    bottom.set_xlabel(
        "step" + (f"   (thin: single steps, bold: mean of {mean_of})" if mean_of else "")
    )
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    for axes in grid[:, 0]:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.align_ylabels()
    figure.legend(loc="outside upper center", ncols=2, frameon=False, handlelength=3.5)
    return figure


def _running_mean(values: NDArray[Any], window: int) -> NDArray[Any]:
    """Mean of up to ``window`` finite values around each; narrower at both ends."""
    import numpy as np

    good = np.isfinite(values)
    ones = np.ones(window)
    # Not from differences of one running sum: a single huge loss would swallow all after it.
    total = np.convolve(np.where(good, values, 0.0), ones, mode="same")
    count = np.convolve(good.astype(float), ones, mode="same")
    return np.where(good, total / np.maximum(count, 1.0), np.nan)

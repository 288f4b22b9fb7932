"""Real images for both frameworks: the same batches, in the same order, from one NumPy reader.

``digits`` comes with scikit-learn; ``mnist`` and ``cifar10`` read the published files from a
folder. Nothing is downloaded.

All three return a loader of the framework asked for: a ``mindspore.dataset`` object, a
``torch.utils.data.DataLoader``, or ``Batches`` of NumPy arrays. A batch is ``(images, labels)``:

- images: float32, ``(batch, channels, size, size)``, scaled to 0..1, then ``(x - mean) / std``
- labels: ``(batch,)``, int32 for MindSpore and int64 for PyTorch and NumPy, as each loss wants them

The order of a pass depends on ``(seed, epoch)`` alone, never on a framework's random state. Each
pass that is begun is one epoch; ``loader.order.epoch`` is the next one, and may be set.

>>> images, labels = next(iter(digits(framework="numpy", batch_size=4)))
>>> images.shape, labels.dtype
((4, 1, 32, 32), dtype('int64'))
"""

from __future__ import annotations

import gzip
import hashlib
import io
import operator
import pickle
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.float32]
Labels = NDArray[np.int64]
Framework = Literal["mindspore", "torch", "numpy"]
Split = Literal["train", "test", "all"]
Checksum = Literal["warn", "require", "off"]

__all__ = ["Batches", "Order", "cifar10", "digits", "mnist"]


def digits(
    size: int = 32,
    channels: int = 1,
    framework: Framework = "mindspore",
    batch_size: int = 32,
    split: Split = "train",
    seed: int = 0,
    *,
    shuffle: bool | None = None,
    drop_last: bool = False,
    num_shards: int = 1,
    shard_id: int = 0,
) -> Any:
    """Handwritten digits: scikit-learn's 1,797 real images of 8 x 8 pixels, resized bilinearly.

    The split is fixed: of each digit, every fifth image is a test image. That makes 1,442 training
    and 355 test images, whatever the seed. ``mean`` and ``std`` are those of the training images'
    8 x 8 pixels, 0.3051 and 0.3762. ``channels=3`` repeats the grey channel.

    The resize takes pixel centres at half-integers, as PyTorch's ``interpolate`` does with
    ``mode="bilinear", align_corners=False``.

    - ``framework``: ``"mindspore"``, ``"torch"`` or ``"numpy"``; which loader is returned
    - ``split``: ``"train"``, ``"test"`` or ``"all"`` (training images first)
    - ``shuffle``: a new order in each epoch; by default, training images only
    - ``drop_last``: leave out a last batch smaller than ``batch_size``
    - ``num_shards``, ``shard_id``: every ``num_shards``-th image of the order, from ``shard_id``
      on, so that the shards' batches together are one batch of the whole; shards are filled up from
      the front of the order to one length, since a rank with fewer batches would hang its peers

    Raises ``ValueError`` or ``TypeError`` for a bad argument.

    >>> images, labels = next(iter(digits(framework="numpy", batch_size=16)))
    >>> images.shape, images.dtype, labels.shape
    ((16, 1, 32, 32), dtype('float32'), (16,))

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.
    """
    framework, split = _checked(framework, split)
    size = _positive("size", size)
    images, labels = _digits(size, split)
    return _loader(
        _with_channels(images, channels),
        labels,
        framework=framework,
        batch_size=batch_size,
        seed=seed,
        shuffle=split == "train" if shuffle is None else shuffle,
        drop_last=drop_last,
        num_shards=num_shards,
        shard_id=shard_id,
    )


def mnist(
    folder: str | Path,
    size: int = 32,
    channels: int = 1,
    framework: Framework = "mindspore",
    batch_size: int = 32,
    split: Split = "train",
    seed: int = 0,
    *,
    shuffle: bool | None = None,
    drop_last: bool = False,
    num_shards: int = 1,
    shard_id: int = 0,
    mean: float = 0.1307,
    std: float = 0.3081,
    checksum: Checksum = "warn",
) -> Any:
    """MNIST, or a data set in its format, from the four standard files in ``folder``.

    The files are called ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``,
    ``t10k-images-idx3-ubyte`` and ``t10k-labels-idx1-ubyte``; a dot before ``idx`` and a final
    ``.gz`` are taken too, and so is torchvision's subfolder ``MNIST/raw``. Only the two files of
    the split need to be there. Images are resized as in ``digits``; all of them are held in memory,
    246 MB for 60,000 images at 32 x 32. ``mean`` and ``std`` are by default those of MNIST's
    training pixels.

    ``checksum`` says what happens when a file is not the published one, as a data set in MNIST's
    format is not: ``"warn"``, ``"require"`` (``ValueError``) or ``"off"``. Other arguments: see
    ``digits``.

    Raises ``FileNotFoundError`` that names the files wanted and found; ``ValueError`` for a damaged
    file, for images and labels that differ in number, and for a label above 9.

    >>> loader = mnist("data/mnist", framework="torch", split="test")  # doctest: +SKIP

    Sources: LeCun, Cortes and Burges, The MNIST database (the IDX format); MD5 of the compressed
    files as in torchvision, of the unpacked ones as in secml; mean and std as in PyTorch's MNIST
    example.
    """
    framework, split = _checked(framework, split)
    size, channels = _positive("size", size), _channels(channels)
    pixels, labels = _both(
        split, lambda part: _read_mnist(Path(folder).expanduser(), part, checksum)
    )
    return _loader(
        _with_channels(_prepared(pixels[:, None], 255, mean, std, size), channels),
        labels,
        framework=framework,
        batch_size=batch_size,
        seed=seed,
        shuffle=split == "train" if shuffle is None else shuffle,
        drop_last=drop_last,
        num_shards=num_shards,
        shard_id=shard_id,
    )


def cifar10(
    folder: str | Path,
    size: int = 32,
    channels: int = 3,
    framework: Framework = "mindspore",
    batch_size: int = 32,
    split: Split = "train",
    seed: int = 0,
    *,
    shuffle: bool | None = None,
    drop_last: bool = False,
    num_shards: int = 1,
    shard_id: int = 0,
    mean: Sequence[float] = (0.4914, 0.4822, 0.4465),
    std: Sequence[float] = (0.2470, 0.2435, 0.2616),
    checksum: Checksum = "warn",
) -> Any:
    """CIFAR-10 from its unpacked files in ``folder``, the Python or the binary version.

    The Python version is ``data_batch_1`` to ``data_batch_5`` and ``test_batch``, the binary one
    the same with ``.bin``; the archives' own subfolders are looked into too. A pickle can run any
    code, so the Python version is read by an unpickler that knows NumPy arrays and plain values
    only. Checksums are published for the files of the Python version alone: for the binary version
    ``"warn"`` finds nothing to compare, and ``"require"`` refuses.

    ``mean`` and ``std`` are by default those of the training pixels, by channel. ``channels=1``
    makes the normalised channels grey: 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601). All images are
    held in memory: 614 MB for 50,000. Other arguments: see ``digits`` and ``mnist``.

    Raises as ``mnist`` does.

    >>> loader = cifar10("data/cifar-10-batches-py", framework="torch")  # doctest: +SKIP

    Sources: A. Krizhevsky, The CIFAR-10 dataset (both formats); MD5 as in torchvision.
    """
    framework, split = _checked(framework, split)
    size, channels = _positive("size", size), _channels(channels)
    pixels, labels = _both(
        split, lambda part: _read_cifar10(Path(folder).expanduser(), part, checksum)
    )
    images = _prepared(pixels, 255, mean, std, size)
    if channels == 1:
        images = np.tensordot(images, np.array([0.299, 0.587, 0.114], np.float32), (1, 0))[:, None]
    return _loader(
        images,
        labels,
        framework=framework,
        batch_size=batch_size,
        seed=seed,
        shuffle=split == "train" if shuffle is None else shuffle,
        drop_last=drop_last,
        num_shards=num_shards,
        shard_id=shard_id,
    )


class Order:
    """The order in which images are read: a function of ``(seed, epoch)``, the same everywhere.

    ``epoch`` is the epoch that the next pass will have. Iterating yields the indices of one epoch.

    >>> order = Order(5, shuffle=False)
    >>> list(order), order.epoch
    ([0, 1, 2, 3, 4], 1)
    >>> list(Order(5, shuffle=False, num_shards=2, shard_id=1))
    [1, 3, 0]
    """

    def __init__(
        self,
        count: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        num_shards: int = 1,
        shard_id: int = 0,
    ) -> None:
        self.count = count
        self.shuffle = _yes_or_no("shuffle", shuffle)
        self.seed = _integer("seed", seed, 0)
        self.num_shards = _positive("num_shards", num_shards)
        self.shard_id = _integer("shard_id", shard_id, 0)
        if self.num_shards > count:
            raise ValueError(f"num_shards is {num_shards}, but there are only {count} images")
        if self.shard_id >= self.num_shards:
            raise ValueError(
                f"shard_id is {shard_id}, but with num_shards={num_shards} it is 0 to "
                f"{self.num_shards - 1}; give each rank its own number"
            )
        self.epoch = 0

    def __len__(self) -> int:
        return -(-self.count // self.num_shards)

    def indices(self, epoch: int) -> NDArray[np.int64]:
        """The indices that this shard reads in ``epoch``."""
        if self.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(self.count)
        else:
            order = np.arange(self.count)
        padded = np.resize(order, len(self) * self.num_shards)
        return padded[self.shard_id :: self.num_shards]

    def begin(self, epochs: int = 1) -> int:
        """Take the next ``epochs`` epochs, and return the first of them."""
        first = self.epoch
        self.epoch += epochs
        return first

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices(self.begin()).tolist())


class Batches:
    """Batches of NumPy arrays; ``images`` and ``labels`` are all of them, in their stored order."""

    def __init__(
        self, images: Images, labels: Labels, order: Order, batch_size: int, drop_last: bool
    ) -> None:
        self.images = images
        self.labels = labels
        self.order = order
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __len__(self) -> int:
        count = len(self.order)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Images, Labels]]:
        indices = self.order.indices(self.order.begin())
        for batch in range(len(self)):
            chosen = indices[batch * self.batch_size : (batch + 1) * self.batch_size]
            yield (
                np.take(self.images, chosen, axis=0),
                self.labels[chosen],
            )  # plain strides for torch


def _loader(
    images: Images,
    labels: Labels,
    *,
    framework: Framework,
    batch_size: int,
    seed: int,
    shuffle: bool,
    drop_last: bool,
    num_shards: int,
    shard_id: int,
) -> Any:
    order = Order(len(labels), shuffle=shuffle, seed=seed, num_shards=num_shards, shard_id=shard_id)
    batch_size = _positive("batch_size", batch_size)
    drop_last = _yes_or_no("drop_last", drop_last)
    if drop_last and batch_size > len(order):
        raise ValueError(
            f"batch_size is {batch_size}, but there are only {len(order)} images, so "
            "drop_last=True leaves no batch; take a smaller batch_size or drop_last=False"
        )
    if framework == "numpy":
        return Batches(images, labels, order, batch_size, drop_last)
    if framework == "torch":
        return _torch_loader(images, labels, order, batch_size, drop_last)
    rows, loader = _mindspore_classes()
    return loader(rows(images, labels, order), batch_size, drop_last)


def _torch_loader(
    images: Images, labels: Labels, order: Order, batch_size: int, drop_last: bool
) -> Any:
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(labels)

        def __getitem__(self, index: int) -> Any:
            return torch.tensor(images[index]), torch.tensor(labels[index])

    # A DataLoader draws a number from torch's global state in each pass unless it has its own.
    loader = DataLoader(
        Rows(),
        batch_size=batch_size,
        sampler=order,
        drop_last=drop_last,
        generator=torch.Generator(),
    )
    loader.order = order
    return loader


@lru_cache(maxsize=1)
def _mindspore_classes() -> tuple[type, type]:
    from mindspore import dataset
    from mindspore.dataset.engine.datasets import BatchDataset

    class Rows:
        """What one MindSpore pipeline reads: epochs ``first``, ``first + 1``, ..."""

        def __init__(self, images: Images, labels: Labels, order: Order) -> None:
            self.images, self.labels, self.order = images, labels.astype(np.int32), order
            self.epochs = 1  # how many the next pipeline is known to read
            self.next: int | None = None

        def __len__(self) -> int:
            return len(self.order)

        def for_pipeline(self, looks_only: bool) -> Rows:
            own = object.__new__(Rows)
            own.__dict__.update(self.__dict__, next=self.order.epoch if looks_only else None)
            return own

        def __iter__(self) -> Iterator[tuple[Any, Any]]:
            if self.next is None:
                self.next = self.order.begin(self.epochs)
            epoch, self.next = self.next, self.next + 1
            for index in self.order.indices(epoch):
                yield self.images[index], self.labels[index]

    class Source(dataset.GeneratorDataset):  # type: ignore[misc]
        # MindSpore copies the dataset for each iterator, whose pipeline reads ahead of what is
        # consumed, into the next epoch if it may. Each copy counts epochs for itself, so that
        # reading ahead does not shift the epochs of the next iterator. output_shapes() and its
        # like ("getters") read a row too, but begin no epoch.
        def pre_parse(self, getter_mode: bool) -> None:
            self.source: Rows = self.source.for_pipeline(getter_mode)
            super().pre_parse(getter_mode)

    class Loader(BatchDataset):  # type: ignore[misc]
        def __init__(self, rows: Rows, batch_size: int, drop_last: bool) -> None:
            source = Source(
                rows,
                ["image", "label"],
                num_parallel_workers=1,
                python_multiprocessing=False,
                shuffle=False,
            )
            super().__init__(source, batch_size, drop_last, num_parallel_workers=1)

        @property
        def order(self) -> Order:
            return self.children[0].source.order  # type: ignore[no-any-return]

        def create_tuple_iterator(
            self, columns: Any = None, num_epochs: int = -1, *args: Any, **kwargs: Any
        ) -> Any:
            with self._reading(num_epochs):
                return super().create_tuple_iterator(columns, num_epochs, *args, **kwargs)

        def create_dict_iterator(self, num_epochs: int = -1, *args: Any, **kwargs: Any) -> Any:
            with self._reading(num_epochs):
                return super().create_dict_iterator(num_epochs, *args, **kwargs)

        @contextmanager
        def _reading(self, num_epochs: int) -> Iterator[None]:
            rows = self.children[0].source
            rows.epochs = num_epochs if isinstance(num_epochs, int) and num_epochs > 0 else 1
            try:
                yield
            finally:
                rows.epochs = 1

    return Rows, Loader


# --- arrays -----------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _digits(size: int, split: Split) -> tuple[Images, Labels]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    labels = bunch.target.astype(np.int64)
    test = np.zeros(len(labels), bool)
    for digit in range(10):
        test[np.flatnonzero(labels == digit)[4::5]] = True
    training = bunch.images[~test] / 16
    chosen = {
        "train": np.flatnonzero(~test),
        "test": np.flatnonzero(test),
        "all": np.concatenate([np.flatnonzero(~test), np.flatnonzero(test)]),
    }[split]
    images = _prepared(bunch.images[chosen, None], 16, training.mean(), training.std(), size)
    labels = labels[chosen]
    images.flags.writeable = labels.flags.writeable = False
    return images, labels


def _prepared(
    pixels: NDArray[Any], full: int, mean: float | Sequence[float], std: Any, size: int
) -> Images:
    """Scale ``(n, channels, height, width)`` pixels to 0..1, normalise and resize, in float64."""
    means, stds = (np.asarray(value, float).reshape(1, -1, 1, 1) for value in (mean, std))
    for name, value in (("mean", means), ("std", stds)):
        if value.size not in (1, pixels.shape[1]) or not np.isfinite(value).all():
            raise ValueError(
                f"{name} is one finite number for each of {pixels.shape[1]} channels, "
                f"not {value.ravel().tolist()}"
            )
    if (stds <= 0).any():
        raise ValueError(f"std is above 0, not {stds.ravel().tolist()}")
    images = np.empty((*pixels.shape[:2], size, size), np.float32)
    rows, columns = (_bilinear(length, size) for length in pixels.shape[2:])
    for start in range(0, len(pixels), 4096):
        part = (pixels[start : start + 4096] / full - means) / stds
        images[start : start + 4096] = rows @ part @ columns.T
    return images


def _bilinear(length: int, size: int) -> NDArray[np.float64]:
    """The ``(size, length)`` weights of linear interpolation, pixel centres at half-integers."""
    centre = np.clip((np.arange(size) + 0.5) * length / size - 0.5, 0, length - 1)
    left = np.floor(centre).astype(int)
    weights = np.zeros((size, length))
    each = np.arange(size)
    weights[each, left] += 1 - (centre - left)
    weights[each, np.minimum(left + 1, length - 1)] += centre - left
    return weights


def _with_channels(images: Images, channels: int) -> Images:
    shape = (len(images), _channels(channels), *images.shape[2:])
    return np.broadcast_to(images, shape)


def _both(split: Split, read: Any) -> tuple[NDArray[np.uint8], Labels]:
    parts = ("train", "test") if split == "all" else (split,)
    pixels, labels = zip(*(read(part) for part in parts), strict=True)
    return np.concatenate(pixels), np.concatenate(labels).astype(np.int64)


# --- files ------------------------------------------------------------------------------------

_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


def _read_mnist(
    folder: Path, part: str, checksum: Checksum
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    prefix = "train" if part == "train" else "t10k"
    wanted = [f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"]
    places = _places(folder, wanted, "MNIST/raw", "raw")
    forms = [[name, name.replace("-idx", ".idx")] for name in wanted]
    paths = _find(
        folder, places, [[[*form, *(f"{name}.gz" for name in form)] for form in forms]], wanted
    )
    images = _idx(paths[0], 3, checksum)
    labels = _idx(paths[1], 1, checksum)
    if len(images) != len(labels):
        raise ValueError(
            f"{paths[0].name} has {len(images)} images, but {paths[1].name} has {len(labels)} "
            "labels; they are not from the same data set"
        )
    return images, _labels(paths[1], labels)


def _idx(path: Path, dimensions: int, checksum: Checksum) -> NDArray[np.uint8]:
    """An IDX file: 0, 0, type (8 is uint8), dimensions, their big-endian uint32 sizes, the data."""
    content = _content(path, checksum, path.name.replace(".idx", "-idx"))
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is not a whole gzip file ({error}); fetch it again") from None
    magic = bytes([0, 0, 8, dimensions])
    if content[:4] != magic:
        raise ValueError(
            f"{path} begins with {content[:4].hex(' ') or 'nothing'}, not with the IDX magic "
            f"number {magic.hex(' ')} (uint8, {dimensions} dimension{'s' * (dimensions > 1)}); "
            "is it the right file, and unpacked once?"
        )
    data = 4 + 4 * dimensions
    shape = tuple(int(n) for n in np.frombuffer(content[4:data].ljust(data - 4, b"\0"), ">u4"))
    expected = data + int(np.prod(shape, dtype=object))
    if len(content) != expected:
        what = "truncated" if len(content) < expected else "too long"
        raise ValueError(
            f"{path} is {what}: its header says {' x '.join(map(str, shape))}, which takes "
            f"{expected} bytes, but it has {len(content)}; fetch it again"
        )
    if not all(shape):
        raise ValueError(f"{path} is empty: its header says {' x '.join(map(str, shape))}")
    return np.frombuffer(content, np.uint8, offset=data).reshape(shape)


def _read_cifar10(
    folder: Path, part: str, checksum: Checksum
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    names = [f"data_batch_{n}" for n in range(1, 6)] if part == "train" else ["test_batch"]
    binary = [f"{name}.bin" for name in names]
    places = _places(folder, [*names, *binary], "cifar-10-batches-py", "cifar-10-batches-bin")
    versions = [[[name] for name in names], [[name] for name in binary]]
    paths = _find(folder, places, versions, [*names, "or the same with .bin"])
    read = _cifar10_binary if paths[0].suffix == ".bin" else _cifar10_python
    pixels, labels = zip(*(read(path, checksum) for path in paths), strict=True)
    return np.concatenate(pixels), np.concatenate(labels)


def _cifar10_binary(path: Path, checksum: Checksum) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Records of 3,073 bytes: the label, then 32 x 32 red, green and blue pixels row by row."""
    content = _content(path, checksum, path.name)
    if not content or len(content) % 3073:
        raise ValueError(
            f"{path} has {len(content)} bytes, not a multiple of 3073 (a label and 3 x 32 x 32 "
            "pixels): it is truncated, or not CIFAR-10's binary version (CIFAR-100 has two labels)"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), _labels(path, records[:, 0])


class _PlainUnpickler(pickle.Unpickler):
    """Builds NumPy arrays and plain values, and refuses to load anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return lambda kind, shape, code: np.empty(shape, np.uint8)
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes in protocol 2
            return lambda text, _: text.encode("latin1")
        raise pickle.UnpicklingError(f"it wants to load {module}.{name}")


def _cifar10_python(path: Path, checksum: Checksum) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    content = _content(path, checksum, path.name)
    try:
        batch = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(batch, dict):
            raise TypeError(f"it holds a {type(batch).__name__}")
        batch = {key.decode() if isinstance(key, bytes) else key: batch[key] for key in batch}
        data, labels = np.asarray(batch["data"]), np.asarray(batch["labels"])
    except Exception as error:
        raise ValueError(
            f"{path} is not a batch of CIFAR-10's Python version, a pickled dictionary with "
            f"data and labels ({type(error).__name__}: {error}); fetch it again"
        ) from None
    fits = data.dtype == np.uint8 and data.shape[1:] == (3072,) and labels.shape == data.shape[:1]
    if not fits or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{path} has data {data.dtype}{data.shape} and labels {labels.dtype}{labels.shape}, "
            "not uint8(n, 3072) and whole numbers (n,); it is not a batch of CIFAR-10"
        )
    return data.reshape(-1, 3, 32, 32), _labels(path, labels)


def _labels(path: Path, labels: NDArray[Any]) -> NDArray[Any]:
    wrong = np.flatnonzero((labels < 0) | (labels > 9))
    if len(wrong):
        raise ValueError(
            f"{path}: label {labels[wrong[0]]} of image {wrong[0]} is not 0 to 9; "
            f"{len(wrong)} of {len(labels)} labels are not. The data set must have ten classes"
        )
    return labels


def _places(folder: Path, wanted: list[str], *subfolders: str) -> list[Path]:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise FileNotFoundError(
            f"folder {str(folder)!r} {what}; it should be a folder with {', '.join(wanted)}"
        )
    return [folder, *(folder / name for name in subfolders if (folder / name).is_dir())]


def _find(
    folder: Path, places: list[Path], versions: list[list[list[str]]], wanted: list[str]
) -> list[Path]:
    """The paths of the first version that is complete in one place."""
    for place in places:
        for version in versions:
            paths = [
                next((place / name for name in names if (place / name).is_file()), None)
                for names in version
            ]
            found = [path for path in paths if path is not None]
            if len(found) == len(paths):
                return found
    names = sorted(path.name for place in places for path in place.iterdir())
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    raise FileNotFoundError(
        f"folder {str(folder)!r} lacks files: wanted {', '.join(wanted)}; "
        f"found {shown or 'nothing'}. Nothing is downloaded: put the files there"
    )


def _content(path: Path, checksum: Checksum, published: str) -> bytes:
    _choose("checksum", checksum, ("warn", "require", "off"))
    content = path.read_bytes()
    expected = _MD5.get(published)
    if checksum == "off" or (expected is None and checksum == "warn"):
        return content
    if expected is None:
        raise ValueError(
            f"no checksum is published for {path.name}, so checksum='require' cannot be met; "
            "use checksum='warn', or CIFAR-10's Python version"
        )
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        message = (
            f"{path} has MD5 {found}, but the published {published} has {expected}: it is damaged, "
            "or another data set in the same format (then say checksum='off')"
        )
        if checksum == "require":
            raise ValueError(message)
        warnings.warn(message, stacklevel=2)
    return content


# --- arguments --------------------------------------------------------------------------------


def _checked(framework: str, split: str) -> tuple[Any, Any]:
    return (
        _choose("framework", framework, ("mindspore", "torch", "numpy")),
        _choose("split", split, ("train", "test", "all")),
    )


def _choose(name: str, value: object, valid: tuple[str, ...]) -> str:
    if value in valid:
        return str(value)
    near = get_close_matches(
        value.lower() if isinstance(value, str) else "", valid, n=1, cutoff=0.7
    )
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{name} is one of {', '.join(map(repr, valid))}, not {value!r}{hint}")


def _integer(name: str, value: object, least: int) -> int:
    expected = f"{name} is a whole number, {least} or more, not {value!r}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(expected)
    number = operator.index(value)
    if number < least:
        raise ValueError(expected)
    return number


def _positive(name: str, value: object) -> int:
    return _integer(name, value, 1)


def _yes_or_no(name: str, value: object) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is True or False, not {value!r}")
    return bool(value)


def _channels(channels: object) -> int:
    if isinstance(channels, bool) or channels not in (1, 3):
        raise ValueError(f"channels is 1 (grey) or 3 (colour), not {channels!r}")
    return int(channels)

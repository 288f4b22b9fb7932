"""Data: the same batches in both frameworks, and files read by their published formats."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest

from msnb import data

FRAMEWORKS = ("numpy", "torch", "mindspore")


def arrays(batch):
    images, labels = batch
    if hasattr(images, "asnumpy"):
        return images.asnumpy(), labels.asnumpy()
    return np.asarray(images), np.asarray(labels)


def read(loader):
    return [arrays(batch) for batch in loader]


def same(found, expected):
    return len(found) == len(expected) and all(
        np.array_equal(images, wanted) and np.array_equal(labels, targets)
        for (images, labels), (wanted, targets) in zip(found, expected, strict=True)
    )


@pytest.fixture(scope="module")
def bunch():
    from sklearn.datasets import load_digits

    return load_digits()


# --- digits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5, 8, 13, 32])
def test_the_resize_is_torchs_bilinear_one(size, bunch):
    import torch

    eight = data.digits(size=8, framework="numpy", split="all", shuffle=False).images
    resized = data.digits(size=size, framework="numpy", split="all").images
    # In float64 on both sides; what remains is the rounding of both to float32.
    expected = torch.nn.functional.interpolate(
        torch.tensor(eight, dtype=torch.float64), (size, size), mode="bilinear", align_corners=False
    ).numpy()
    limit = 2**-23 * np.abs(eight).max()
    assert resized.shape == (1797, 1, size, size)
    assert resized.dtype == np.float32
    assert np.abs(resized - expected).max() <= limit
    corners = torch.nn.functional.interpolate(
        torch.tensor(eight), (size, size), mode="bilinear", align_corners=True
    ).numpy()
    assert size == 8 or np.abs(resized - corners).max() > 0.1  # the other convention is found


def test_the_pixels_are_scaled_and_normalised_by_the_training_split(bunch):
    train = data.digits(size=8, framework="numpy")
    test = data.digits(size=8, framework="numpy", split="test")
    assert abs(train.images.mean(dtype=float)) < 1e-6
    assert abs(train.images.std(dtype=float) - 1) < 1e-6
    assert abs(test.images.mean(dtype=float)) > 1e-3  # the test split took no part
    documented = [float(n) for n in ("0.3051", "0.3762")]
    assert all(str(number) in data.digits.__doc__ for number in documented)
    restored = (train.images * documented[1] + documented[0]) * 16
    assert np.abs(restored - restored.round()).max() < 0.01
    assert (restored.round().min(), restored.round().max()) == (0, 16)


def test_the_split_is_fixed_stratified_and_complete(bunch):
    train = data.digits(size=8, framework="numpy", seed=1)
    other = data.digits(size=8, framework="numpy", seed=2)
    test = data.digits(size=8, framework="numpy", split="test")
    everything = data.digits(size=8, framework="numpy", split="all")
    assert np.array_equal(train.images, other.images)
    assert np.array_equal(everything.images, np.concatenate([train.images, test.images]))
    assert (len(train.labels), len(test.labels)) == (1442, 355)

    taken, seen = [], [0] * 10  # every fifth of each digit, by walking through the data set
    for label in bunch.target:
        seen[label] += 1
        taken.append(seen[label] % 5 == 0)
    taken = np.array(taken)
    assert np.array_equal(test.labels, bunch.target[taken])
    assert np.array_equal(train.labels, bunch.target[~taken])
    pixels = (test.images[:, 0] * 0.3761576 + 0.3051358) * 16
    assert np.abs(pixels - bunch.images[taken]).max() < 1e-4
    share = np.bincount(test.labels) / np.bincount(bunch.target)
    assert share.min() > 0.19
    assert share.max() <= 0.2


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("split", ["train", "test"])
def test_all_frameworks_give_the_same_batches_in_the_same_order(split, drop_last):
    options = {"split": split, "drop_last": drop_last, "batch_size": 100, "size": 12, "seed": 5}
    numpy, torch, mindspore = (data.digits(framework=name, **options) for name in FRAMEWORKS)
    count = {"train": 1442, "test": 355}[split]
    length = count // 100 + (0 if drop_last else 1)
    assert len(numpy) == len(torch) == mindspore.get_dataset_size() == length
    assert numpy.batch_size == torch.batch_size == mindspore.get_batch_size() == 100

    epochs = [[read(loader) for loader in (numpy, torch, mindspore)] for _ in range(2)]
    for expected, *others in epochs:
        assert len(expected) == length
        assert len(expected[-1][1]) == (100 if drop_last else count % 100)
        assert all(same(found, expected) for found in others)
    assert same(epochs[1][0], epochs[0][0]) == (split == "test")
    assert numpy.order.epoch == torch.order.epoch == mindspore.order.epoch == 2
    if split == "train":
        different = read(data.digits(framework="numpy", **{**options, "seed": 6}))
        assert not same(different, epochs[0][0])


def test_an_epoch_reads_every_image_once():
    loader = data.digits(size=8, framework="numpy", batch_size=64)
    images = np.concatenate([images for images, _ in loader])
    key = [image.tobytes() for image in images]
    assert sorted(key) == sorted(image.tobytes() for image in loader.images)
    assert key != [image.tobytes() for image in loader.images]


def test_shapes_and_dtypes_are_what_each_loss_wants():
    import mindspore
    import torch

    for channels in (1, 3):
        x, y = next(iter(data.digits(channels=channels, framework="torch", batch_size=4)))
        assert (x.dtype, tuple(x.shape), y.dtype) == (
            torch.float32,
            (4, channels, 32, 32),
            torch.int64,
        )
        torch.nn.functional.cross_entropy(x.mean((1, 2)), y % 10)
        x, y = next(iter(data.digits(channels=channels, batch_size=4)))
        assert (x.dtype, x.shape, y.dtype) == (
            mindspore.float32,
            (4, channels, 32, 32),
            mindspore.int32,
        )
        mindspore.ops.cross_entropy(x.mean((1, 2)), y).asnumpy()
    three = data.digits(channels=3, framework="numpy").images
    assert np.array_equal(three[:, 0], three[:, 2])


def labels_of(iterator):
    return [label for row in iterator for label in arrays(row)[1].tolist()]


def expected_labels(epoch, **options):
    loader = data.digits(framework="numpy", batch_size=100, size=8, **options)
    loader.order.epoch = epoch
    return labels_of(loader)


def test_mindspore_epochs_count_however_the_dataset_is_iterated():
    loader = data.digits(batch_size=100, size=8)
    assert loader.output_shapes() == [[100, 1, 8, 8], [100]]
    assert loader.get_col_names() == ["image", "label"]
    assert loader.get_dataset_size() == 15
    assert loader.order.epoch == 0  # looking is no epoch

    for epoch in (0, 1):  # an iterator without end reads ahead; the next one must not skip
        assert labels_of(loader.create_tuple_iterator()) == expected_labels(epoch)
    iterator = loader.create_tuple_iterator(num_epochs=2)
    assert [labels_of(iterator) for _ in range(2)] == [expected_labels(n) for n in (2, 3)]
    rows = loader.create_dict_iterator(num_epochs=1)
    assert labels_of((row["image"], row["label"]) for row in rows) == expected_labels(4)
    mapped = loader.map(np.negative, "image")
    assert [labels_of(mapped) for _ in range(2)] == [expected_labels(n) for n in (5, 6)]
    loader.order.epoch = 1
    assert labels_of(loader) == expected_labels(1)


def test_the_mindspore_loader_trains_a_model():
    import mindspore
    from mindspore import nn

    seen = []

    class Seen(mindspore.train.Callback):
        def on_train_step_end(self, run_context):
            seen.extend(run_context.original_args()["train_dataset_element"][1].asnumpy().tolist())

    net = nn.SequentialCell(nn.Flatten(), nn.Dense(64, 10))
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    loader = data.digits(batch_size=100, size=8)
    model = mindspore.train.Model(net, nn.CrossEntropyLoss(), optimizer)
    model.train(2, loader, callbacks=[Seen()], dataset_sink_mode=False)
    assert seen == expected_labels(0) + expected_labels(1)
    assert loader.order.epoch == 2


def test_iterating_leaves_torchs_random_state_alone():
    import torch

    before = torch.get_rng_state()
    read(data.digits(size=8, framework="torch", batch_size=500))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_shards_batches_make_up_the_whole_batch(framework):
    whole = read(data.digits(size=8, framework="numpy", batch_size=32))
    options = {"size": 8, "framework": framework, "batch_size": 16, "num_shards": 2}
    shards = [read(data.digits(**options, shard_id=rank)) for rank in (0, 1)]
    assert len(shards[0]) == len(shards[1]) == len(whole) == 46
    for (images, labels), *parts in zip(whole, *shards, strict=True):
        joined = np.empty_like(images), np.empty_like(labels)
        for rank, part in enumerate(parts):
            joined[0][rank::2], joined[1][rank::2] = part
        assert np.array_equal(joined[0], images)
        assert np.array_equal(joined[1], labels)


def test_uneven_shards_are_filled_up_from_the_front():
    shards = [data.Order(7, shuffle=False, num_shards=3, shard_id=rank) for rank in range(3)]
    assert [list(shard) for shard in shards] == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]
    assert [len(shard) for shard in shards] == [3, 3, 3]


def test_the_images_are_kept_once_and_cannot_be_spoilt():
    first, second = (data.digits(framework="numpy", seed=seed) for seed in (0, 1))
    assert np.shares_memory(first.images, second.images)
    with pytest.raises(ValueError, match="read-only"):
        first.images[0] = 0
    images, _ = next(iter(first))
    images[:] = 0  # a batch is the reader's own
    assert first.images.any()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"size": 0}, ValueError, "size is a whole number, 1 or more, not 0"),
        ({"size": 32.5}, TypeError, "size is a whole number, 1 or more, not 32.5"),
        ({"size": True}, TypeError, "size is a whole number"),
        ({"channels": 2}, ValueError, r"channels is 1 \(grey\) or 3 \(colour\), not 2"),
        ({"channels": "rgb"}, ValueError, "channels is 1 .* not 'rgb'"),
        ({"framework": "mindspor"}, ValueError, "not 'mindspor'; did you mean 'mindspore'?"),
        ({"framework": "PyTorch"}, ValueError, "did you mean 'torch'?"),
        ({"framework": ["torch"]}, ValueError, "framework is one of 'mindspore', 'torch', 'numpy'"),
        ({"split": "tets"}, ValueError, "not 'tets'; did you mean 'test'?"),
        ({"split": "val"}, ValueError, "split is one of 'train', 'test', 'all', not 'val'$"),
        ({"batch_size": 0}, ValueError, "batch_size is a whole number, 1 or more, not 0"),
        ({"batch_size": "32"}, TypeError, "batch_size is a whole number, 1 or more, not '32'"),
        (
            {"batch_size": 1500, "drop_last": True},
            ValueError,
            "batch_size is 1500, but there are only 1442 images.*take a smaller batch_size",
        ),
        ({"shuffle": "no"}, TypeError, "shuffle is True or False, not 'no'"),
        ({"drop_last": "false"}, TypeError, "drop_last is True or False, not 'false'"),
        ({"drop_last": None}, TypeError, "drop_last is True or False, not None"),
        ({"seed": -1}, ValueError, "seed is a whole number, 0 or more, not -1"),
        ({"num_shards": 2, "shard_id": 2}, ValueError, "shard_id is 2, .* it is 0 to 1"),
        ({"num_shards": 9999}, ValueError, "num_shards is 9999, but there are only 1442"),
    ],
)
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_bad_arguments_get_a_sentence(framework, options, error, text):
    with pytest.raises(error, match=text):
        data.digits(**{"framework": framework, "size": 8, **options})


def test_a_batch_may_be_larger_than_the_data():
    assert len(data.digits(size=8, framework="numpy", batch_size=5000)) == 1


# --- MNIST ------------------------------------------------------------------------------------

PIXELS = np.random.default_rng(0).integers(0, 256, (7, 28, 28), np.uint8)
TARGETS = np.array([3, 1, 4, 1, 5, 9, 0], np.uint8)


def idx(array):
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return struct.pack(">BBBB", 0, 0, 8, array.ndim) + sizes + array.tobytes()


def write_mnist(folder, images="train-images-idx3-ubyte", labels="train-labels-idx1-ubyte"):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in ((images, PIXELS), (labels, TARGETS)):
        content = idx(array)
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_mnist(tmp_path / "手写 数字")


def mnist(folder, **options):
    return data.mnist(folder, **{"framework": "numpy", "checksum": "off", "size": 28, **options})


def test_mnist_agrees_with_mindspores_own_reader(folder):
    from mindspore.dataset import MnistDataset

    rows = MnistDataset(str(folder), "train", shuffle=False).create_tuple_iterator(
        num_epochs=1, output_numpy=True
    )
    pixels, labels = zip(*rows, strict=True)
    loader = mnist(folder, mean=0, std=1 / 255)
    assert np.array_equal(loader.images, np.moveaxis(np.stack(pixels), -1, 1).astype(np.float32))
    assert np.array_equal(loader.labels, np.stack(labels))
    assert loader.labels.dtype == np.int64


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("", ("train-images.idx3-ubyte", "train-labels.idx1-ubyte")),
        ("", ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")),
        ("", ("train-images.idx3-ubyte.gz", "train-labels-idx1-ubyte")),
        ("MNIST/raw", ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")),
    ],
)
def test_mnist_files_have_several_names(tmp_path, place, names):
    write_mnist(tmp_path / place, *names)
    loader = mnist(tmp_path)
    assert np.abs(loader.images[:, 0] - (PIXELS / 255 - 0.1307) / 0.3081).max() < 1e-6
    assert loader.labels.tolist() == TARGETS.tolist()


def test_mnist_splits_are_separate_files(folder):
    with pytest.raises(FileNotFoundError, match=r"t10k-images-idx3-ubyte.*found train-images"):
        mnist(folder, split="test")
    write_mnist(folder, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    assert len(mnist(folder, split="test").labels) == 7
    assert len(mnist(folder, split="all").labels) == 14


def test_mnist_is_resized_like_torch_does_and_loads_in_both(folder):
    import torch

    batches = [
        read(mnist(folder, framework=name, size=32, batch_size=4, channels=3))
        for name in FRAMEWORKS
    ]
    assert same(batches[1], batches[0])
    assert same(batches[2], batches[0])
    normal = torch.tensor((PIXELS[:, None] / 255 - 0.1307) / 0.3081)
    expected = torch.nn.functional.interpolate(normal, (32, 32), mode="bilinear")
    assert np.abs(mnist(folder, size=32).images - expected.numpy()).max() < 1e-6


def spoil(folder, name, change):
    path = folder / f"train-{name}-ubyte"
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        (
            "images-idx3",
            lambda raw: raw[:-1],
            "truncated.*7 x 28 x 28.*5504 bytes, but it has 5503",
        ),
        ("images-idx3", lambda raw: raw[:9], "truncated"),
        ("images-idx3", lambda raw: raw + b"x", "too long"),
        ("images-idx3", lambda raw: b"", "begins with nothing"),
        ("images-idx3", lambda raw: gzip.compress(raw), "begins with 1f 8b.*unpacked once"),
        ("images-idx3", lambda raw: idx(TARGETS), "begins with 00 00 08 01, not .* 00 00 08 03"),
        ("images-idx3", lambda raw: idx(PIXELS[:0]), "is empty"),
        ("images-idx3", lambda raw: idx(PIXELS[:5]), "has 5 images, but .* has 7 labels"),
        ("labels-idx1", lambda raw: idx(TARGETS + 1), "label 10 of image 5 is not 0 to 9; 1 of 7"),
    ],
)
def test_a_damaged_mnist_file_gets_a_sentence(folder, name, change, text):
    spoil(folder, name, change)
    with pytest.raises(ValueError, match=text):
        mnist(folder)


def test_a_broken_gzip_gets_a_sentence(tmp_path):
    names = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
    write_mnist(tmp_path, *names)
    path = tmp_path / names[0]
    whole = path.read_bytes()
    for content in (whole[:-9], b"plain", whole[:40] + bytes(20) + whole[60:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="not a whole gzip file"):
            mnist(tmp_path)


def test_a_folder_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"'{tmp_path}/mnist' does not exist"):
        mnist("~/mnist")


def test_a_wrong_folder_says_what_was_wanted_and_found(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"does not exist.*train-images-idx3-ubyte"):
        mnist(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"wanted train-images-idx3-ubyte.*found nothing"):
        mnist(tmp_path)
    (tmp_path / "mnist.npz").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"found mnist.npz. Nothing is downloaded"):
        mnist(tmp_path)
    with pytest.raises(FileNotFoundError, match="is a file"):
        mnist(tmp_path / "mnist.npz")


def test_a_checksum_warns_refuses_or_is_off(tmp_path, monkeypatch, recwarn):
    names = ("train-images.idx3-ubyte.gz", "train-labels.idx1-ubyte.gz")
    write_mnist(tmp_path, *names)
    with pytest.raises(ValueError, match=r"has MD5 .*f68b3c2dcbeaaa9fbdd348bbdeb94873.*'off'"):
        mnist(tmp_path, checksum="require")
    with pytest.warns(UserWarning, match="another data set in the same format"):
        mnist(tmp_path, checksum="warn")
    recwarn.clear()
    mnist(tmp_path, checksum="off")
    for name in names:
        digest = hashlib.md5((tmp_path / name).read_bytes()).hexdigest()
        monkeypatch.setitem(data._MD5, name.replace(".idx", "-idx"), digest)
    assert len(mnist(tmp_path, checksum="require").labels) == 7
    mnist(tmp_path, checksum="warn")
    assert not recwarn.list
    write_mnist(tmp_path / "plain")
    with pytest.raises(ValueError, match="6bbc9ace898e44ae57da46a324031adb"):
        mnist(tmp_path / "plain", checksum="require")
    with pytest.raises(ValueError, match="not 'on'"):
        mnist(tmp_path, checksum="on")


@pytest.mark.parametrize("options", [{"std": 0}, {"std": -1}, {"mean": float("nan")}])
def test_a_normalisation_that_cannot_be_gets_a_sentence(folder, options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} is"):
        mnist(folder, **options)


# --- CIFAR-10 ---------------------------------------------------------------------------------

COLOUR = np.random.default_rng(1).integers(0, 256, (10, 3, 32, 32), np.uint8)
TRAIN = [f"data_batch_{n}" for n in range(1, 6)]


def write_binary(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for batch, name in enumerate(TRAIN):
        records = [struct.pack("B", n) + COLOUR[n].tobytes() for n in (2 * batch, 2 * batch + 1)]
        (folder / f"{name}.bin").write_bytes(b"".join(records))
    return folder


def write_python(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for batch, name in enumerate(TRAIN):
        chosen = [2 * batch, 2 * batch + 1]
        content = {
            b"batch_label": b"training batch",
            b"labels": chosen,
            b"data": COLOUR[chosen].reshape(2, -1),
            b"filenames": [b"a.png", b"b.png"],
        }
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    return folder


def cifar10(folder, **options):
    return data.cifar10(folder, **{"framework": "numpy", "checksum": "off", **options})


@pytest.mark.parametrize("write", [write_binary, write_python])
@pytest.mark.parametrize("place", ["", "own"])
def test_cifar10_reads_both_versions(tmp_path, write, place):
    inner = {write_binary: "cifar-10-batches-bin", write_python: "cifar-10-batches-py"}[write]
    write(tmp_path / (inner if place else ""))
    loader = cifar10(tmp_path)
    assert loader.labels.tolist() == list(range(10))
    for channel, (mean, std) in enumerate([(0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)]):
        expected = (COLOUR[:, channel] / 255 - mean) / std
        assert np.abs(loader.images[:, channel] - expected).max() < 1e-6
    grey = cifar10(tmp_path, channels=1).images
    luma = 0.299 * loader.images[:, 0] + 0.587 * loader.images[:, 1] + 0.114 * loader.images[:, 2]
    assert np.abs(grey[:, 0] - luma).max() < 1e-6
    batches = [read(cifar10(tmp_path, framework=name, batch_size=4)) for name in FRAMEWORKS]
    assert same(batches[1], batches[0])
    assert same(batches[2], batches[0])


def test_a_python_2_pickle_is_read(tmp_path):
    """The published files were written by Python 2, whose str pickles as SHORT_BINSTRING."""
    write_python(tmp_path)
    array = pickle.dumps(np.zeros((1, 3072), np.uint8), protocol=2)[2:-1]
    old = b"\x80\x02}(U\x04data" + array + b"U\x06labels]K\x07au."
    (tmp_path / "test_batch").write_bytes(old)
    assert cifar10(tmp_path, split="test").labels.tolist() == [7]


class Attack:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    write_python(tmp_path)
    mark = tmp_path / "executed"
    content = pickle.dumps({b"labels": [1], b"data": Attack(mark)}, protocol=2)
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(ValueError, match=r"data_batch_1 is not a batch.*load posix.mkdir"):
        cifar10(tmp_path)
    assert not mark.exists()
    pickle.loads(content)  # the attack is a real one
    assert mark.exists()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is not a batch of CIFAR-10's Python version"),
        (b"\x80\x02}q", "is not a batch"),
        (pickle.dumps([1, 2]), "is not a batch"),
        (pickle.dumps(np.zeros(3, np.uint8), protocol=2), "TypeError: it holds a ndarray"),
        (pickle.dumps({b"data": [1]}), "KeyError: 'labels'"),
        (pickle.dumps({b"data": [[1]], b"labels": [1]}), "not uint8"),
        (
            pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [12]}, protocol=2),
            "label 12 of image 0 is not 0 to 9",
        ),
        *(
            (
                pickle.dumps(
                    {b"data": np.zeros((1, 3072), np.uint8), b"labels": [odd]}, protocol=2
                ),
                "not uint8.n, 3072. and whole numbers",
            )
            for odd in (float("nan"), "3", None)
        ),
    ],
)
def test_a_damaged_python_batch_gets_a_sentence(tmp_path, content, text):
    write_python(tmp_path)
    (tmp_path / "data_batch_3").write_bytes(content)
    with pytest.raises(ValueError, match=f"data_batch_3.*{text}"):
        cifar10(tmp_path)


def test_a_damaged_binary_batch_gets_a_sentence(tmp_path):
    path = write_binary(tmp_path) / "data_batch_2.bin"
    whole = path.read_bytes()
    for content in (whole[:-1], b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="not a multiple of 3073"):
            cifar10(tmp_path)
    path.write_bytes(b"\x0b" + whole[1:])
    with pytest.raises(ValueError, match="label 11 of image 0"):
        cifar10(tmp_path)


def test_an_incomplete_cifar10_folder_says_what_was_wanted_and_found(tmp_path):
    (write_binary(tmp_path) / "data_batch_4.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_4.*\.bin; found data_batch_1\.bin"):
        cifar10(tmp_path)


def test_cifar10_checksums_are_those_of_the_python_version(tmp_path):
    write_python(tmp_path / "py")
    with pytest.raises(ValueError, match="c99cafc152244af753f735de768cd75f"):
        cifar10(tmp_path / "py", checksum="require")
    write_binary(tmp_path / "bin")
    with pytest.raises(ValueError, match=r"no checksum is published for data_batch_1.bin"):
        cifar10(tmp_path / "bin", checksum="require")


# --- imports ----------------------------------------------------------------------------------


def loaded_by(statement):
    heavy = {"mindspore", "sklearn", "torch"}
    code = f"import sys; {statement}; print(sorted({heavy} & {{*sys.modules}}))"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_importing_loads_no_framework():
    assert loaded_by("import msnb.data, msnb.nets") == "[]"
    assert loaded_by("import sklearn") == "['sklearn']"  # the test can fail

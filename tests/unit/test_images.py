import sys

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from jaxlab.data.images import PHOTOGRAPHS, load_images, random_patches

KEY = jax.random.key(3)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("astronaut", (1, 512, 512)),
        ("camera", (1, 512, 512)),
        ("coffee", (1, 400, 600)),
        ("coins", (1, 303, 384)),
        ("page", (1, 191, 384)),
        ("brick", (1, 512, 512)),
        ("grass", (1, 512, 512)),
        ("faces", (200, 25, 25)),
        ("digits", (1797, 8, 8)),
    ],
)
def test_images_are_grey_and_in_range(name, shape):
    images = load_images(name)
    assert images.pixels.shape == shape
    assert images.pixels.dtype == np.float64
    assert images.labels.shape == shape[:1]
    assert -1 <= images.pixels.min() < images.pixels.max() <= 1
    assert name in (*PHOTOGRAPHS, "digits", "faces")


def test_digits_are_those_of_scikit_learn():
    theirs, ours = load_digits(), load_images("digits")
    np.testing.assert_array_equal(ours.labels, theirs.target)
    np.testing.assert_array_equal(8 * (ours.pixels + 1), theirs.images)


def test_photographs_are_those_of_scikit_image():
    from skimage import color, data

    np.testing.assert_allclose(
        load_images("camera").pixels[0], data.camera() / 127.5 - 1, atol=1e-15
    )
    grey = color.rgb2gray(data.astronaut())
    # Its luminance rounds the factor of red to 0.2125 and of green to 0.7154.
    np.testing.assert_allclose(load_images("astronaut").pixels[0], 2 * grey - 1, atol=1e-3)


def test_faces_come_first():
    assert load_images("faces").labels.tolist() == [1] * 100 + [0] * 100


def test_patches_lie_in_the_images():
    wide, tall = np.arange(20.0).reshape(4, 5) / 20, -np.arange(18.0).reshape(6, 3) / 18
    patches = random_patches(KEY, [wide, tall], size=3, num_patches=400)
    places = [
        image[i : i + 3, j : j + 3]
        for image in (wide, tall)
        for i in range(image.shape[0] - 2)
        for j in range(image.shape[1] - 2)
    ]
    same = (patches[:, None] == np.stack(places)[None]).all(axis=(2, 3))
    assert (same.sum(axis=1) == 1).all()
    # Six places in one image and four in the other, of half the patches each.
    expected = np.repeat([200 / 6, 200 / 4], [6, 4])
    assert (np.abs(same.sum(axis=0) - expected) < 5 * np.sqrt(expected)).all()


def test_the_key_decides_the_patches():
    pixels = load_images("coins").pixels
    one, again, other = (
        random_patches(key, pixels, size=8, num_patches=4) for key in (KEY, KEY, jax.random.key(4))
    )
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    whole = random_patches(KEY, pixels[:, :8, :8], size=8, num_patches=1)
    np.testing.assert_array_equal(whole[0], pixels[0, :8, :8])


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        ([], {}, "images must hold at least one image, got none"),
        ([np.zeros((9, 9)), np.zeros((9, 7))], {}, r"images\[1\] must be .* size = 8 .*\(9, 7\)"),
        ([np.zeros(64)], {}, r"images\[0\] must be \[height, width\].*\(64,\)"),
        ([np.full((9, 9), np.nan)], {}, r"images\[0\] must be finite, got 81 NaN"),
        ([np.zeros((9, 9))], {"num_patches": 0}, "num_patches must be at least 1, got 0"),
        ([np.zeros((9, 9))], {"size": 0}, "size must be at least 1, got 0"),
    ],
)
@pytest.mark.usefixtures("without_type_checks")
def test_bad_patches_are_refused(images, options, message):
    with pytest.raises(ValueError, match=message):
        random_patches(KEY, images, **{"size": 8, "num_patches": 2, **options})


@pytest.mark.usefixtures("without_type_checks")
def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"name must be one of digits, astronaut.*got 'lena'"):
        load_images("lena")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("package", "name"), [("skimage", "camera"), ("sklearn", "digits"), ("skimage", "faces")]
)
def test_a_missing_package_is_named(monkeypatch, package, name):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.io", None)
    with pytest.raises(ImportError, match=rf"{name}.* needs scikit-.*jaxlab\[experiments\]"):
        load_images(name)


def test_other_numbers_are_noticed(monkeypatch):
    monkeypatch.setattr("skimage.io.imread", lambda path: np.zeros((4, 4), np.uint8))
    with pytest.raises(ValueError, match=r"the image camera must have the sha256 .*scikit-image"):
        load_images("camera")

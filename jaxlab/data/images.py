"""Small grey images out of installed packages, and patches of them.

Pixels are float64 in [-1, 1], of shape ``[images, height, width]``; float32 is a cast away. Digits
come with scikit-learn, photographs and face crops with scikit-image's wheel; nothing is downloaded.
Checksums notice if a release changes them.
"""

from collections.abc import Sequence
from importlib import resources
from typing import Literal, NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from jaxlab.core.checks import check_count, check_finite, check_key
from jaxlab.core.locate import missing_package
from jaxlab.data.packaged import check_digest
from jaxlab.data.tabular import load_table

__all__ = ["PHOTOGRAPHS", "ImageName", "Images", "load_images", "random_patches"]

ImageName: TypeAlias = Literal[
    "digits", "faces", "astronaut", "brick", "camera", "coffee", "coins", "grass", "page"
]
"""The names that ``load_images`` knows."""

PHOTOGRAPHS: tuple[ImageName, ...] = (
    "astronaut",
    "brick",
    "camera",
    "coffee",
    "coins",
    "grass",
    "page",
)
"""The names of single photographs."""

_CHECKSUMS = {
    "astronaut": "a8c429c18afa7b0fd5673e598d73a21225d94c864a71bbb3885126fdecb41071",
    "brick": "664a145c5253f0d66db1a12776785f0ea35a44cc7447ffc933f6d6118dc58643",
    "camera": "5cb24482a53416f99052258be2b1ee38cd31c559a70c8a8b321cba231b332e21",
    "coffee": "0ce2b51640b9c95f19617f03eabf40c3f0368589cc1ee1190b70966165ac184f",
    "coins": "e080cc03805f1fa70516c3cb84883d4633bda2a1b51841da7c22f3d14c072451",
    "faces": "ce1ab433bd0a896d88a87e40efdf37d9e1ce98bbd3317b498da9f0a7b8e125d5",
    "grass": "b18dae4c68bf850a7a7b28a29d1846c76be890665117b57fd125fe29c4d4ede6",
    "page": "667bfd85aab58052ae90251fae1a265cf8be6d1097b1e61dcfc183b65887a1fe",
}

# Of red, green and blue in the luminance, ITU-R BT.709.
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


class Images(NamedTuple):
    """Grey images with labels.

    Attributes:
        pixels: In [-1, 1].
        labels: The digit; 1 for a face and 0 for another crop; 0 for a photograph.
    """

    pixels: Float[np.ndarray, "images height width"]
    labels: Int[np.ndarray, " images"]


def load_images(name: ImageName) -> Images:
    """Images by name.

    Args:
        name: ``"digits"`` (1797 of 8 x 8, as shipped in scikit-learn under BSD-3), ``"faces"``
            (200 crops of 25 x 25 from Labeled Faces in the Wild, the first 100 of faces), or one
            of ``PHOTOGRAPHS`` (one image, colours turned to luminance); both as shipped in
            scikit-image, whose documentation names the licence of each.

    Raises:
        ImportError: The package is not installed.
        ValueError: The name is unknown, or the installed numbers are not the known ones.

    Example:
        >>> load_images("digits").pixels.shape, load_images("camera").pixels.shape
        ((1797, 8, 8), (1, 512, 512))
    """
    if name == "digits":
        table = load_table("digits")
        return Images(table.features.reshape(-1, 8, 8) / 8 - 1, table.targets.astype(np.int64))
    if name not in _CHECKSUMS:
        raise ValueError(f"name must be one of digits, {', '.join(_CHECKSUMS)}, got {name!r}")
    raw = _read(name)
    check_digest(f"the image {name}", "scikit-image", _CHECKSUMS[name], raw)
    if name == "faces":
        return Images(2 * raw.astype(np.float64) - 1, (np.arange(len(raw)) < 100).astype(np.int64))
    grey = raw @ _LUMINANCE if raw.ndim == 3 else raw.astype(np.float64)
    return Images(grey[None] / 127.5 - 1, np.zeros(1, np.int64))


def random_patches(
    key: Array,
    images: Sequence[Float[np.ndarray, "_ _"]] | Float[np.ndarray, "images height width"],
    *,
    size: int,
    num_patches: int,
) -> Float[np.ndarray, "patches size size"]:
    """Square patches at random places of random images, drawn with replacement.

    Every image is equally likely, then every place in it.

    Args:
        key: Decides which patches.
        images: Of any sizes, such as ``load_images("camera").pixels``.
        size: Of a patch, in pixels.
        num_patches: How many.

    Raises:
        TypeError: ``key`` is not a typed key, or a size not an integer.
        ValueError: There is no image, one is smaller than a patch or has NaN or infinity.

    Example:
        >>> pixels = load_images("camera").pixels
        >>> random_patches(jax.random.key(0), pixels, size=8, num_patches=5).shape
        (5, 8, 8)
    """
    check_key("key", key)
    check_count("size", size)
    check_count("num_patches", num_patches)
    if not len(images):
        raise ValueError("images must hold at least one image, got none")
    for i, image in enumerate(images):
        if np.ndim(image) != 2 or min(image.shape) < size:
            raise ValueError(
                f"images[{i}] must be [height, width] with at least size = {size} pixels each, "
                f"got shape {np.shape(image)}"
            )
        check_finite(f"images[{i}]", image)
    key_image, key_place = jax.random.split(key)
    chosen = np.asarray(jax.random.randint(key_image, (num_patches,), 0, len(images)))
    # One draw in [0, 1) serves all sizes of images.
    place = np.asarray(jax.random.uniform(key_place, (num_patches, 2)), dtype=np.float64)
    shapes = np.array([image.shape for image in images])[chosen]
    corners = np.floor(place * (shapes - size + 1)).astype(int)
    # Patches lie in images of different sizes: a loop over views, once per data set.
    return np.stack(
        [
            images[i][row : row + size, column : column + size]
            for i, (row, column) in zip(chosen, corners, strict=True)
        ]
    )


def _read(name: str) -> np.ndarray:
    try:
        import skimage.io
    except ImportError as error:
        raise missing_package(f"the image {name}", "scikit-image", error) from error
    file = "lfw_subset.npy" if name == "faces" else f"{name}.png"
    with resources.as_file(resources.files("skimage.data") / file) as path:
        return np.ascontiguousarray(np.load(path) if name == "faces" else skimage.io.imread(path))

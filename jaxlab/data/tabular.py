"""Small tables that come with scikit-learn, prepared for linear models, and their sharing out.

The numbers are read from the installed scikit-learn wheel; nothing is downloaded. A checksum
notices if a release changes them.
"""

from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxlab.core.checks import check_count, check_finite
from jaxlab.core.locate import missing_package
from jaxlab.data.packaged import check_digest
from jaxlab.problems.regression import Shards

__all__ = [
    "Table",
    "breast_cancer",
    "diabetes",
    "digits",
    "load_table",
    "prepare_features",
    "split_sorted",
    "standardize",
]


class Table(NamedTuple):
    """A table of numbers in float64.

    Attributes:
        features: One row per example.
        targets: -1 or 1 for classification, a number for regression.
    """

    features: Float[np.ndarray, "rows columns"]
    targets: Float[np.ndarray, " rows"]


_CHECKSUMS = {
    "breast_cancer": "cdd5f37c36cbdfc2e5ee074cec7540fac54340874afb25917a673e446270d0d0",
    "diabetes": "e9c1f7559552854a24dc45b41c446ce5f79f96e5da081bcce24b57492720b3f7",
    "digits": "f19a7d92591ca0a1ffc65ec172e8149afdff995e0d2c4cb0afd151f38471ff90",
}


def breast_cancer() -> Table:
    """Measurements of 569 tumours in 30 columns; the target is 1 for benign, -1 for malignant.

    Source: Wisconsin Diagnostic Breast Cancer (Street, Wolberg, Mangasarian 1993), as shipped in
    scikit-learn under BSD-3.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: The installed table is not the known one.

    Example:
        >>> table = breast_cancer()
        >>> table.features.shape, int((table.targets == 1).sum())
        ((569, 30), 357)
    """
    table = load_table("breast_cancer")
    return Table(table.features, 2 * table.targets - 1)


def digits() -> Table:
    """1797 handwritten digits of 8 x 8 pixels; the target is 1 for even digits, -1 for odd ones.

    Source: UCI Optical Recognition of Handwritten Digits, test part (Alpaydin, Kaynak 1998), as
    shipped in scikit-learn under BSD-3.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: The installed table is not the known one.

    Example:
        >>> table = digits()
        >>> table.features.shape, int((table.targets == 1).sum())
        ((1797, 64), 891)
    """
    table = load_table("digits")
    return Table(table.features, 1 - 2 * (table.targets % 2))


def diabetes() -> Table:
    """442 patients in 10 columns; the target is the progression of the disease after a year.

    Source: Efron, Hastie, Johnstone, Tibshirani 2004, "Least Angle Regression", as shipped in
    scikit-learn under BSD-3, not scaled.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: The installed table is not the known one.

    Example:
        >>> table = diabetes()
        >>> table.features.shape, float(table.targets.max())
        ((442, 10), 346.0)
    """
    return load_table("diabetes")


def standardize(columns: Float[np.ndarray, "rows ..."]) -> Float[np.ndarray, "rows ..."]:
    """Every column with mean 0 and standard deviation 1; constant columns become 0.

    Raises:
        ValueError: There is NaN or infinity, or no row.

    Example:
        >>> standardize(np.array([[1.0, 5.0], [3.0, 5.0]])).tolist()
        [[-1.0, 0.0], [1.0, 0.0]]
    """
    if not columns.size:
        raise ValueError(f"columns must have at least one entry, got shape {columns.shape}")
    check_finite("columns", columns)
    centred = columns - columns.mean(axis=0)
    deviation = columns.std(axis=0)
    # Rounding leaves a constant column a deviation of about epsilon, which must not be blown up.
    constant = np.ptp(columns, axis=0) == 0
    return np.where(constant, 0.0, centred / np.where(constant, 1.0, deviation))


def prepare_features(
    features: Float[np.ndarray, "rows columns"],
) -> Float[np.ndarray, "rows dim"]:
    """Standardise, drop constant columns, add a bias column, divide by the root of the width.

    Rows then have a squared norm of about 1, so that smoothness constants compare across tables.

    Raises:
        ValueError: There is NaN or infinity, or no row.

    Example:
        >>> prepare_features(np.array([[1.0, 5.0], [3.0, 5.0]])).round(3).tolist()
        [[-0.707, 0.707], [0.707, 0.707]]
    """
    columns = standardize(features)[:, np.ptp(features, axis=0) > 0]
    with_bias = np.concatenate([columns, np.ones((len(columns), 1))], axis=1)
    return with_bias / np.sqrt(with_bias.shape[1])


def split_sorted(
    features: Float[np.ndarray, "rows dim"],
    targets: Float[np.ndarray, " targets"],
    num_agents: int,
    *,
    by: Literal["feature", "target"] = "feature",
) -> Shards:
    """Sort the rows and cut them into runs, one per agent, as different as a sorting makes them.

    Every row is kept: if the agents' shares differ by one row, the shorter ones end with a row of
    weight 0. Each agent's weights sum to 1. The ridge is 0; ``regression.with_condition`` sets it.

    Args:
        features: One row per example.
        targets: One target per example.
        num_agents: How many shares.
        by: Sort by the first feature or by the target; ties keep their order.

    Raises:
        ValueError: There are more agents than rows, ``targets`` has another length, something is
            NaN or infinite, or ``by`` is unknown.

    Example:
        >>> shards = split_sorted(np.array([[3.0], [1.0], [2.0]]), np.array([30.0, 10.0, 20.0]), 2)
        >>> shards.targets.tolist(), shards.weights.tolist()
        ([[10.0, 20.0], [30.0, 0.0]], [[0.5, 0.5], [1.0, 0.0]])
    """
    check_count("num_agents", num_agents)
    check_finite("features", features)
    check_finite("targets", targets)
    if len(targets) != len(features):
        raise ValueError(
            f"targets must have {len(features)} rows like features, got {len(targets)}"
        )
    if num_agents > len(features):
        raise ValueError(
            f"num_agents must be at most the number of rows {len(features)}, got {num_agents}"
        )
    if by not in ("feature", "target"):
        raise ValueError(f"by must be 'feature' or 'target', got {by!r}")
    order = np.argsort(features[:, 0] if by == "feature" else targets, kind="stable")
    shares = np.array_split(order, num_agents)
    longest = max(len(share) for share in shares)

    def padded(rows: np.ndarray) -> np.ndarray:
        return np.pad(rows, [(0, longest - len(rows))] + [(0, 0)] * (rows.ndim - 1))

    return Shards(
        features=jnp.asarray(np.stack([padded(features[share]) for share in shares])),
        targets=jnp.asarray(np.stack([padded(targets[share]) for share in shares])),
        weights=jnp.asarray(
            np.stack([padded(np.full(len(share), 1 / len(share))) for share in shares])
        ),
        ridge=jnp.zeros(num_agents),
    )


def load_table(name: Literal["breast_cancer", "diabetes", "digits"]) -> Table:
    """A table with the targets that it is shipped with, such as 0 to 9 for the digits.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: The name is unknown, or the installed table is not the known one.

    Example:
        >>> load_table("digits").targets[:3].tolist()
        [0.0, 1.0, 2.0]
    """
    if name not in _CHECKSUMS:
        raise ValueError(f"name must be one of {', '.join(_CHECKSUMS)}, got {name!r}")
    what = f"the {name} table"
    try:
        from sklearn import datasets
    except ImportError as error:
        raise missing_package(what, "scikit-learn", error) from error
    options = {"scaled": False} if name == "diabetes" else {}
    features, targets = getattr(datasets, f"load_{name}")(return_X_y=True, **options)
    features = np.ascontiguousarray(features, dtype=np.float64)
    targets = np.ascontiguousarray(targets, dtype=np.float64)
    check_digest(what, "scikit-learn", _CHECKSUMS[name], features, targets)
    return Table(features, targets)

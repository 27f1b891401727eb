"""Tidy numbers: one row per measurement, in a file that figures and verdicts are made from."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxlab.core.files import write_text

__all__ = ["Row", "read_metrics", "select", "sweep_rows", "write_metrics"]


class Row(NamedTuple):
    """One measurement.

    Attributes:
        method: What was run.
        metric: What was measured.
        value: The measurement.
        step: When, or at which value of the quantity that a sweep varies.
        seed: The repetition's seed.
        dataset: The input, if there are several.
        graph: The communication graph, if there are several.
    """

    method: str
    metric: str
    value: float
    step: float = 0.0
    seed: int = 0
    dataset: str = ""
    graph: str = ""


def write_metrics(path: Path, rows: list[Row]) -> None:
    """Write rows as CSV, whole; floats so that they read back bit for bit."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(Row._fields)
    for row in rows:
        plain = row._replace(value=float(row.value), step=float(row.step), seed=int(row.seed))
        writer.writerow([repr(v) if isinstance(v, float) else v for v in plain])
    write_text(path, stream.getvalue())


def read_metrics(path: Path) -> list[Row]:
    """Read what ``write_metrics`` wrote.

    Raises:
        ValueError: The file has other columns.
    """
    with path.open(newline="") as stream:
        header, *lines = csv.reader(stream)
    if tuple(header) != Row._fields:
        raise ValueError(f"{path} must have the columns {', '.join(Row._fields)}, got {header}")
    return [
        Row(method, metric, float(value), float(step), int(seed), dataset, graph)
        for method, metric, value, step, seed, dataset, graph in lines
    ]


def select(rows: list[Row], **fields: Any) -> list[Row]:
    """The rows whose fields have these values, in their order.

    Example:
        >>> rows = [Row("a", "error", 0.5, step=1), Row("b", "error", 0.1, step=1)]
        >>> [row.value for row in select(rows, method="b")]
        [0.1]
    """
    return [row for row in rows if all(getattr(row, k) == v for k, v in fields.items())]


def sweep_rows(
    first_seed: int,
    method: str,
    metric: str,
    sizes: Sequence[float],
    values: Float[np.ndarray, "seeds sizes"],
) -> list[Row]:
    """Rows of a sweep, whose ``step`` is the swept quantity.

    Example:
        >>> sweep_rows(7, "a", "cost", [2.0, 4.0], np.array([[0.5, 0.7]]))[1]
        Row(method='a', metric='cost', value=0.7, step=4.0, seed=7, dataset='', graph='')
    """
    return [
        Row(method, metric, float(values[s, i]), step=size, seed=first_seed + s)
        for s in range(len(values))
        for i, size in enumerate(sizes)
    ]

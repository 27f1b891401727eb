"""A picture of a counterexample: the margin along the two numbers that matter most."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.claims.claim import Claim
from jaxlab.claims.evaluate import evaluate, precise
from jaxlab.claims.report import part_name
from jaxlab.claims.search import tolerance_of
from jaxlab.claims.verdict import Candidate
from jaxlab.core.files import write_bytes
from jaxlab.core.trees import split_real

__all__ = ["MOST_NUMBERS", "draw_counterexample", "margin_slice"]

MOST_NUMBERS = 24
"""Instances with more real numbers than this get no picture of their own accord."""

_POINTS = 81
_REACH = 1.0
"""How far the picture goes, relative to the larger of the number and 1."""


def draw_counterexample(
    claim: Claim, candidate: Candidate, variant: Mapping[str, Any], path: Path
) -> Path:
    """Draw where the claim holds and where it fails around a counterexample.

    Args:
        claim: The theorem.
        candidate: The counterexample.
        variant: The mutant's keyword arguments.
        path: The PNG file.

    Returns:
        The file.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: The instance holds no real number, or the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names, ranges, centre, margin, slack = margin_slice(claim, candidate, variant)
    figure = Figure(figsize=(8, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    outside = ~(slack >= -tolerance_of(claim))
    if len(names) == 1:
        _curve(axes, ranges[0], margin, outside, centre[0])
        axes.set_ylabel("margin (the claim fails below 0)", fontsize=14)
    else:
        _map(figure, axes, ranges, margin, outside, centre)
        axes.set_ylabel(names[1], fontsize=14)
    axes.set_xlabel(names[0], fontsize=14)
    axes.tick_params(labelsize=12)
    axes.set_title(f"{claim.name}\ncounterexample of {candidate.family!r}", fontsize=14)
    axes.legend(fontsize=12, loc="upper left", framealpha=0.9)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    try:
        write_bytes(path, stream.getvalue())
    except OSError as error:
        raise ValueError(f"figure must be a file that can be written, got {str(path)!r}") from error
    return path


def margin_slice(
    claim: Claim, candidate: Candidate, variant: Mapping[str, Any]
) -> tuple[list[str], list[np.ndarray], list[float], np.ndarray, np.ndarray]:
    """The margin on a grid along the one or two numbers that change it most.

    Returns:
        The numbers' names, their values along the grid, their values at the counterexample, and
        margins and slacks of the assumptions with one axis per number.

    Raises:
        ValueError: The instance holds no real number.
    """
    with precise():
        parts, rebuild = split_real(candidate.instance)
        names = [
            _entry(path, array.shape, index) for path, array in parts for index in range(array.size)
        ]
        if not names:
            raise ValueError("the instance must hold a real number to be drawn, got none")
        start = np.concatenate([array.astype(float).ravel() for _, array in parts])

        def look(values: jax.Array) -> tuple[jax.Array, jax.Array]:
            seen = evaluate(
                claim, rebuild(values), candidate.key, claim.error, candidate.sizes, variant
            )
            return jnp.asarray(seen.estimate), jnp.asarray(seen.slack)

        looks = jax.jit(jax.vmap(look))
        chosen = _most_important(looks, start)
        axes = [
            start[i] + np.linspace(-1, 1, _POINTS) * _REACH * max(1.0, abs(start[i]))
            for i in chosen
        ]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        points = np.tile(start, (*grid.shape[:-1], 1))
        points[..., chosen] = grid
        margin, slack = looks(points.reshape(-1, len(start)))
        shape = grid.shape[:-1]
    return (
        [names[i] for i in chosen], axes, [float(start[i]) for i in chosen],
        np.asarray(margin).reshape(shape), np.asarray(slack).reshape(shape),
    )  # fmt: skip


def _most_important(looks: Any, start: np.ndarray) -> list[int]:
    """The numbers whose change by a tenth of their scale changes the margin most."""
    step = 0.1 * np.maximum(1.0, np.abs(start))
    moved = np.concatenate([start + np.diag(step), start - np.diag(step), start[None]])
    margins = np.nan_to_num(np.asarray(looks(moved)[0]), posinf=1e30, neginf=-1e30)
    change = np.abs(margins[:-1] - margins[-1]).reshape(2, -1).max(axis=0)
    return [int(i) for i in np.argsort(-change, kind="stable")[:2]]


def _curve(axes: Any, x: np.ndarray, margin: np.ndarray, outside: np.ndarray, at: float) -> None:
    axes.plot(x, np.where(outside, np.nan, margin), color="#0072B2", linewidth=2)
    axes.axhline(0, color="black", linewidth=1)
    axes.axvline(at, color="#D55E00", linestyle="--", linewidth=2, label="counterexample")


def _map(
    figure: Any,
    axes: Any,
    ranges: list[np.ndarray],
    margin: np.ndarray,
    outside: np.ndarray,
    centre: list[float],
) -> None:
    # Zero is in the middle of the colours, and one large value must not wash out the rest.
    usable = np.where(outside | ~np.isfinite(margin), np.nan, margin).T
    finite = np.abs(usable[np.isfinite(usable)])
    limit = float(np.quantile(finite, 0.9)) if finite.size else 1.0
    shown = axes.pcolormesh(
        *ranges, usable, cmap="PuOr", vmin=-max(limit, 1e-12), vmax=max(limit, 1e-12),
        shading="nearest", rasterized=True,
    )  # fmt: skip
    bar = figure.colorbar(shown, ax=axes)
    bar.set_label("margin: the claim fails below 0", fontsize=13)
    axes.set_facecolor("#dddddd")
    if np.nanmin(usable) < 0 < np.nanmax(usable):
        axes.contour(*ranges, np.nan_to_num(usable, nan=limit), levels=[0.0], colors="black")
    axes.plot([], [], color="black", label="margin 0")
    axes.plot([], [], color="#dddddd", linewidth=10, label="outside the assumptions")
    axes.plot(*centre, "*", color="#D55E00", markersize=18, markeredgecolor="white",
              label="counterexample", linestyle="none")  # fmt: skip


def _entry(path: Any, shape: tuple[int, ...], index: int) -> str:
    if not shape:
        return part_name(path)
    place = ", ".join(str(i) for i in np.unravel_index(index, shape))
    return f"{part_name(path)}[{place}]"

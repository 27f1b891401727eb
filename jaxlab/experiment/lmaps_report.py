"""What the experiment ``lmaps`` concludes from its metrics, and how it draws them."""

import math
from typing import Any

import numpy as np

from jaxlab.experiment.figures import PALETTE, method_style
from jaxlab.experiment.metrics import Row, select
from jaxlab.experiment.verdict import Criterion, Report, ReportTable

__all__ = ["DPS_STEPS", "MODES", "TASKS", "TILE", "draw", "judge", "toy_measurement"]

TASKS = ("inpainting", "super-resolution", "blur", "quantised", "JPEG", "phase")
"""What was measured; the first two are those of the table."""

TILE = 32
"""The side of the picture, in pixels."""

DPS_STEPS = 200
"""Levels of DPS and PiGDM; LMAPS takes 50."""

MODES = 3
"""Of the panel in two dimensions."""

_BEST, _SPHERE, _SAMPLE = "LMAPS, tweedie", "LMAPS, gaussian", "posterior sample"
_LABELS = {"inpainting": "24 of 64", "super-resolution": "2 x 2 means"}


def toy_measurement() -> tuple[np.ndarray, ...]:
    """Weights, means and deviations of three modes; matrix, value and noise of a measurement."""
    means = np.array([[-1.5, -1.0], [1.5, -1.0], [0.2, 1.6]])
    deviations = np.array([0.35, 0.35, 0.5])
    weights = np.array([0.4, 0.25, 0.35])
    return weights, means, deviations, np.array([[1.0, 0.3]]), np.array([0.4]), np.array(0.6)


def psnr(mse: float) -> float:
    """Peak signal-to-noise ratio in dB, for pixels in [-1, 1].

    Example:
        >>> round(psnr(0.01), 2)
        26.02
    """
    return 10 * math.log10(4 / mse) if mse > 0 else math.nan


def _quality(
    rows: list[Row], method: str, task: str, step: float = 1.0, metric: str = "mse"
) -> float:
    found = select(rows, method=method, metric=metric, dataset=task, step=step)
    return psnr(float(np.mean([row.value for row in found]))) if found else math.nan


def _methods(rows: list[Row], task: str) -> list[tuple[str, float]]:
    """Methods and shares of fresh noise with a result, in their order."""
    found = [
        (row.method, row.step)
        for row in select(rows, metric="mse", dataset=task)
        if row.method not in ("Gaussian prior", "seen")
    ]
    return list(dict.fromkeys(found))


def _best_dps(rows: list[Row], task: str) -> float:
    names = {name for name, _ in _methods(rows, task) if name.startswith("DPS")}
    return max(_quality(rows, name, task) for name in names)


def _rhos(rows: list[Row], method: str, metric: str = "mse") -> list[float]:
    return sorted({row.step for row in select(rows, method=method, metric=metric)})


def judge(rows: list[Row]) -> Report:
    """Criteria, notes and tables."""
    criteria = []
    for task in TASKS[:2]:
        ours = _quality(rows, _BEST, task)
        above = ours - _quality(rows, _SAMPLE, task)
        below = _quality(rows, "posterior mean", task) - ours
        dps = ours - _best_dps(rows, task)
        criteria += [
            Criterion(f"{task}: LMAPS over posterior samples, dB", above, at_least=0.8),
            Criterion(f"{task}: posterior mean over LMAPS, dB", below, at_least=0.0, shape=True),
            Criterion(f"{task}: LMAPS over the best DPS, dB", dps, at_least=0.8),
        ]
    apart = [_off(rows, task, rho) for task in TASKS[:2] for rho in _rhos(rows, "Gaussian prior")]
    rises = [
        _quality(rows, "Gaussian prior", task, 1.0) - _quality(rows, "Gaussian prior", task, 0.0)
        for task in TASKS[:2]
    ]
    criteria += [
        Criterion("Gaussian prior: error off its prediction, deviations", max(apart), at_most=4.0),
        Criterion("Gaussian prior: rho 1 over rho 0, dB, least", min(rises), 0.0, shape=True),
    ]
    for task in _drawn_tasks(rows):
        gain = _quality(rows, "LMAPS, descent", task) - _quality(rows, "DAPS", task)
        criteria.append(Criterion(f"{task}: LMAPS over DAPS, dB", gain, at_least=0.0))
    return Report(criteria, _notes(rows), [_table(rows), _other_table(rows)])


def _off(rows: list[Row], task: str, rho: float) -> float:
    """By how many deviations the mean squared error is off its prediction."""
    where = {"method": "Gaussian prior", "dataset": task, "step": rho}
    measured, predicted, deviation = (
        np.mean([row.value for row in select(rows, metric=metric, **where)])
        for metric in ("mse", "predicted", "deviation")
    )
    return float(abs(measured - predicted) / deviation)


def _drawn_tasks(rows: list[Row]) -> list[str]:
    return [task for task in TASKS[2:] if select(rows, method="DAPS", dataset=task)]


def _notes(rows: list[Row]) -> list[str]:
    notes = [
        "The denoiser is exact for its prior, and the prior is another photograph's: neither the "
        "paper's networks nor its images are here."
    ]
    for task in TASKS[:2]:
        lost = _quality(rows, _SPHERE, task) - _quality(rows, _SPHERE, task, 0.0)
        if lost > 0:
            notes.append(
                f"{task}: without fresh noise (rho 0) the spherical covariance loses {lost:.1f} dB"
            )
        ours = _quality(rows, _BEST, task)
        better = [
            f"{name} ({_quality(rows, name, task, rho):.2f})"
            for name, rho in _methods(rows, task)
            if name != "posterior mean" and _quality(rows, name, task, rho) > ours
        ]
        if better:
            notes.append(f"{task}: better than LMAPS, tweedie ({ours:.2f}): " + ", ".join(better))
    for task in TASKS[2:]:
        ours, seen = (_quality(rows, name, task) for name in ("LMAPS, descent", "seen"))
        if ours < seen:
            notes.append(
                f"{task}: the picture as seen ({seen:.2f} dB) is better than LMAPS ({ours:.2f} dB)"
            )
    for task in _drawn_tasks(rows):
        gain = _quality(rows, "LMAPS, descent", task) - _quality(rows, "DAPS", task)
        if gain < 2:
            notes.append(
                f"{task}: LMAPS is {gain:+.2f} dB from DAPS; the paper's first abstract tells of "
                "2 dB and more over its rivals"
            )
    return notes


def _table(rows: list[Row]) -> ReportTable:
    lines = []
    for name, rho in _methods(rows, TASKS[0]):
        told = f"{name}, rho {rho:g}" if name.startswith("LMAPS") else name
        cells = []
        for task in TASKS[:2]:
            seeds = select(rows, method=name, metric="mse", dataset=task, step=rho)
            spread = np.std([psnr(row.value) for row in seeds])
            cells.append(f"{_quality(rows, name, task, rho):.2f} ± {spread:.2f}")
        lines.append((told, *cells))
    columns = ("solver", *(f"{task} ({_LABELS[task]})" for task in TASKS[:2]))
    return ReportTable("PSNR in dB, ± its deviation between seeds", columns, lines)


def _other_table(rows: list[Row]) -> ReportTable:
    lines = [
        (
            task,
            *(f"{_quality(rows, name, task):.2f}" for name in ("seen", "DAPS", "LMAPS, descent")),
        )
        for task in TASKS[2:]
        if select(rows, dataset=task, metric="mse")
    ]
    columns = ("task", "as seen", "DAPS", "LMAPS")
    return ReportTable("PSNR in dB of other measurements", columns, lines)


def draw(rows: list[Row], figure: Any) -> None:
    """Four panels: solvers, fresh noise with its prediction, three modes, and the picture."""
    top, bottom = figure.subfigures(2, 1)
    solvers, shares = top.subplots(1, 2, width_ratios=(1.15, 1))
    left, right = bottom.subfigures(1, 2, width_ratios=(1, 1.35))
    _draw_solvers(rows, solvers)
    _draw_shares(rows, shares)
    _draw_modes(rows, left.subplots())
    _draw_pictures(rows, right)


def _draw_solvers(rows: list[Row], axes: Any) -> None:
    names = _methods(rows, TASKS[0])
    names.sort(key=lambda pair: _quality(rows, pair[0], TASKS[0], pair[1]))
    for task, marker, colour in zip(TASKS[:2], "os", ("blue", "orange"), strict=True):
        values = [_quality(rows, name, task, rho) for name, rho in names]
        axes.plot(
            values, range(len(names)), marker=marker, linestyle="", color=PALETTE[colour],
            label=f"{task} ({_LABELS[task]})",
        )  # fmt: skip
    told = [f"{n}, ρ = {rho:g}" if n.startswith("LMAPS") else n for n, rho in names]
    axes.set_yticks(range(len(names)), told, fontsize=11)
    for label, (name, _) in zip(axes.get_yticklabels(), names, strict=True):
        label.set_fontweight("bold" if name.startswith("posterior") else "normal")
    axes.set(xlabel="PSNR in dB", title="(a) solvers with one exact denoiser")
    axes.legend(loc="upper left", fontsize=11)


def _draw_shares(rows: list[Row], axes: Any) -> None:
    for task, marker, colour in zip(TASKS[:2], "os", ("blue", "orange"), strict=True):
        fine = _rhos(rows, "Gaussian prior", "curve")
        curve = [_quality(rows, "Gaussian prior", task, rho, "curve") for rho in fine]
        axes.plot(fine, curve, color=PALETTE[colour], linewidth=1.4)
        for method, face in (("Gaussian prior", "none"), (_BEST, PALETTE[colour])):
            rhos = _rhos(rows, method)
            axes.errorbar(
                rhos, [_quality(rows, method, task, rho) for rho in rhos],
                [_decibels(rows, method, task, rho) for rho in rhos], marker=marker,
                linestyle="" if face == "none" else ":", color=PALETTE[colour], capsize=4,
                markerfacecolor=face, markersize=10 if face == "none" else 7,
            )  # fmt: skip
        axes.plot([], [], color=PALETTE[colour], marker=marker, linestyle="", label=task)
    axes.plot([], [], "k-", linewidth=1.4, label="prediction, Gaussian prior")
    axes.plot([], [], "ko", markerfacecolor="none", label="LMAPS, Gaussian prior, ± 2 sd")
    axes.plot([], [], "ko:", label="LMAPS, mixture prior")
    axes.set(
        xlabel="share ρ of fresh noise", ylabel="PSNR in dB",
        title="(b) fresh noise: measured and predicted",
    )  # fmt: skip
    axes.legend(loc="best", fontsize=11)


def _decibels(rows: list[Row], method: str, task: str, rho: float) -> float:
    """Two deviations of a mean squared error around its prediction; 0 without a prediction."""
    where = {"method": method, "dataset": task, "step": rho}
    deviation = select(rows, metric="deviation", **where)
    if not deviation:
        return 0.0
    (predicted,) = select(rows, metric="predicted", **where)
    return 20 / math.log(10) * deviation[0].value / predicted.value


def _draw_modes(rows: list[Row], axes: Any) -> None:
    weights, means, deviations, matrix, y, noise = toy_measurement()
    x, z = np.meshgrid(np.linspace(-3, 3.2, 300), np.linspace(-2.6, 3.2, 300))
    points = np.stack([x, z], axis=-1)
    prior = sum(
        w * np.exp(-((points - m) ** 2).sum(-1) / (2 * d**2)) / d**2
        for w, m, d in zip(weights, means, deviations, strict=True)
    )
    posterior = prior * np.exp(-((points @ matrix[0] - y[0]) ** 2) / (2 * noise**2))
    axes.contour(x, z, prior, levels=4, colors=PALETTE["grey"], linewidths=0.8, linestyles="--")
    axes.contourf(x, z, posterior, levels=8, cmap="Greys", alpha=0.7)
    for method in ("DPS", "DAPS", "LMAPS"):
        style = method_style(method)
        for seed in sorted({row.seed for row in select(rows, method=method, metric="path_x")}):
            path = np.array(
                [[r.value for r in select(rows, method=method, metric=m, seed=seed)]
                 for m in ("path_x", "path_y")]
            )  # fmt: skip
            if seed < 2:  # more paths hide each other
                axes.plot(*path[:, 8:], color=style["color"], linewidth=1.1, alpha=0.7)
            axes.plot(*path[:, -1], **style, markersize=9, markeredgecolor="white", zorder=3)
        axes.plot([], [], **style, label=f"{method}, ends")
    best = np.unravel_index(posterior.argmax(), posterior.shape)
    axes.plot(x[best], z[best], "k*", markersize=17, markeredgecolor="white", label="global MAP")
    axes.plot([], [], color=PALETTE["grey"], linewidth=0.8, linestyle="--", label="prior")
    axes.fill_between([], [], [], color="black", alpha=0.3, label="posterior")
    axes.set(
        xlabel="first coordinate", ylabel="second coordinate", xlim=(-3, 3.2), ylim=(-2.6, 4.6),
        title="(c) three modes, ends of 6 runs, 2 paths",
    )  # fmt: skip
    axes.legend(loc="upper left", ncols=2, fontsize=10.5, columnspacing=1.0)
    axes.grid(visible=False)


def _draw_pictures(rows: list[Row], figure: Any) -> None:
    shown = [task for task in TASKS if select(rows, method="restored", dataset=task)]
    figure.suptitle("(d) what was seen, LMAPS, and the truth (32 × 32 pixels)", fontsize=16)
    grid = figure.subplots(3, len(shown), squeeze=False)
    for column, task in enumerate(shown):
        for row, what in enumerate(("seen", "restored", "true")):
            axes = grid[row, column]
            pixels = _picture(rows, what, "" if what == "true" else task)
            axes.set_facecolor(PALETTE["sky"])
            axes.imshow(pixels, cmap="gray", vmin=-1, vmax=1, interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.grid(visible=False)
            if column == 0:
                axes.set_ylabel({"restored": "LMAPS", "true": "truth"}.get(what, what))
            if row == 0:
                axes.set_title(task, fontsize=12)
            if np.isnan(pixels).all():
                axes.text(
                    0.5, 0.5, "magnitudes\nonly", transform=axes.transAxes, ha="center",
                    va="center", fontsize=11,
                )  # fmt: skip


def _picture(rows: list[Row], what: str, task: str) -> np.ndarray:
    found = sorted(select(rows, method=what, metric="pixel", dataset=task), key=lambda r: r.step)
    side = TILE // 8
    patches = np.array([row.value for row in found]).reshape(side, side, 8, 8)
    return patches.transpose(0, 2, 1, 3).reshape(TILE, TILE)

"""One look for all figures, readable at half size and without telling red from green."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxlab.core.files import write_bytes
from jaxlab.experiment.metrics import Row, read_metrics

__all__ = ["PALETTE", "draw_figure", "method_style", "save_figure"]

PALETTE = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "vermilion": "#D55E00",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "black": "#000000",
    "grey": "#7F7F7F",
}
"""The colours of Okabe and Ito, but for their yellow, which is too light for lines."""

_METHODS = {
    "accelerated": ("blue", "o"),
    "plain": ("orange", "s"),
    "plain, few steps": ("sky", "D"),
    "SSDA": ("black", "X"),
    "Scaffnew": ("green", "^"),
    "SCAFFOLD": ("vermilion", "v"),
    "gradient tracking": ("purple", "P"),
    "FedAvg": ("grey", "*"),
    "plain IS": ("grey", "*"),
    "i-SIR": ("purple", "P"),
    "PMC": ("sky", "D"),
    "AMIS (L = 0)": ("orange", "s"),
    "delayed (L = 1)": ("blue", "o"),
    "delayed (L = 2)": ("green", "^"),
    "tempered SMC": ("black", "X"),
    "AMP": ("blue", "o"),
    "AMP, no knowledge": ("sky", "D"),
    "spectral": ("vermilion", "^"),
    "ridge on products": ("purple", "P"),
    "W": ("blue", "o"),
    "C": ("orange", "s"),
    "standard": ("vermilion", "o"),
    "gap": ("green", "s"),
    "narrow gap": ("sky", "D"),
    "dummy gap, large": ("orange", "^"),
    "dummy gap, small": ("purple", "v"),
    "LMAPS": ("blue", "o"),
    "DAPS": ("orange", "s"),
    "DPS": ("vermilion", "^"),
    "DeMoA": ("blue", "o"),
    "naive": ("vermilion", "^"),
    "unsteered": ("grey", "*"),
    "A-LQR": ("blue", "o"),
    "A-LQR, centred": ("sky", "D"),
    "feature LQR": ("green", "^"),
    "feature LQR, centred": ("green", "^"),
    "proportional": ("orange", "s"),
    "proportional, centred": ("orange", "D"),
    "S-PID": ("purple", "P"),
    "open loop": ("black", "X"),
    "ActAdd, all layers": ("vermilion", "v"),
    "ActAdd, one layer": ("grey", "*"),
    "OEU": ("blue", "o"),
    "entropy": ("orange", "s"),
    "random labels": ("vermilion", "v"),
    "similar labels": ("sky", "D"),
    "reweighted": ("purple", "P"),
    "gradient ascent": ("green", "^"),
    "fine-tuning": ("grey", "X"),
}

_STYLE: dict[Any, Any] = {
    "font.size": 15,
    "axes.titlesize": 16,
    "axes.labelsize": 15,
    "legend.fontsize": 13.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 2.2,
    "lines.markersize": 8,
    "legend.framealpha": 0.9,
    "svg.hashsalt": "jaxlab",
    "svg.fonttype": "path",
}


def method_style(method: str) -> dict[str, str]:
    """A method's colour and marker, the same in every figure.

    Example:
        >>> method_style("accelerated")
        {'color': '#0072B2', 'marker': 'o'}
    """
    colour, marker = _METHODS[method]
    return {"color": PALETTE[colour], "marker": marker}


def save_figure(draw: Callable[[list[Row], Any], None], folder: Path) -> None:
    """Draw ``figure.png`` and ``figure.svg`` from the folder's ``metrics.csv`` and nothing else.

    Args:
        draw: ``(rows, figure) -> None`` on an empty ``matplotlib.figure.Figure``.
        folder: A run's folder.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: ``metrics.csv`` is missing or the folder cannot be written.
    """
    rows = read_metrics(folder / "metrics.csv")
    draw_figure(lambda figure: draw(rows, figure), folder)


def draw_figure(
    draw: Callable[[Any], None], folder: Path, *, size: tuple[float, float] = (15.0, 11.0)
) -> None:
    """Draw ``figure.png`` and ``figure.svg``.

    Args:
        draw: ``figure -> None`` on an empty ``matplotlib.figure.Figure``.
        folder: Where the files go.
        size: Width and height in inches, of 100 pixels.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: The folder cannot be written.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        for suffix in ("png", "svg"):
            stream = io.BytesIO()
            metadata = {"Date": None} if suffix == "svg" else None
            figure.savefig(stream, format=suffix, dpi=100, metadata=metadata)
            write_bytes(folder / f"figure.{suffix}", stream.getvalue())

"""The findings in words and as JSON."""

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from jaxlab.diffusion.memorization_copies import COPY_RATIO
from jaxlab.memorize.rows import Rows
from jaxlab.memorize.sources import Source
from jaxlab.memorize.study import Found, Settings, Study

__all__ = ["gap_of", "summary", "tell"]

_QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 1.0)
_LISTED = 20
_SHOWN_LEVELS = 16


def gap_of(found: Study) -> tuple[float, float] | None:
    """The gap to leave out of training: where both curves come within 0.1 of the threshold.

    None where no level reaches the threshold itself.
    """
    zone, wider = found.zones[:2]
    return None if np.isnan(zone.low) else (wider.low, wider.high)


def summary(found: Study, settings: Settings) -> dict[str, Any]:
    """Everything, for programs; the same numbers for the same files and settings."""
    gap = gap_of(found)
    return {
        "data": _source(found.data),
        "scale": {"name": settings.scale, **found.scale._asdict()},
        "training_rows": len(found.train),
        "held_out": {
            "rows": found.held_count,
            "split_off": found.held_out.source is found.data,
            **({} if found.held_out.source is found.data else _source(found.held_out.source)),
            **_copies(found.held_out),
        },
        "shells": {"width": found.width, "own_mass": found.own_mass},
        "curves": found.curves._asdict(),
        "zones": [
            {
                "threshold": zone.threshold,
                "sigma": None if np.isnan(zone.low) else [zone.low, zone.high],
                "next_levels": [_number(zone.next_below), _number(zone.next_above)],
            }
            for zone in sorted(found.zones)
        ],
        "threshold": found.zones[0].threshold,
        "gap": gap,
        "data_scale": found.data_scale,
        "samples": None
        if found.samples is None
        else {
            **_source(found.samples.source),
            "equal_to_a_training_row": len(found.samples.same),
            "first_equal": found.samples.same[:_LISTED].tolist(),
            **_copies(found.samples),
        },
        "settings": vars(settings),
        "warnings": found.warnings,
    }


def _source(source: Source) -> dict[str, Any]:
    rows, seen = source.rows, source.survey
    return {
        "file": rows.path,
        "shape": rows.shape,
        "dtype": str(rows.dtype),
        "low": seen.low,
        "high": seen.high,
        "radius": seen.radius,
        "repeated_rows": len(source.repeats),
        "first_repeated": [[i, source.first[i]] for i in source.repeats[:_LISTED]],
        "constant_rows": len(seen.constant),
        "first_constant": seen.constant[:_LISTED],
    }


def _copies(found: Found) -> dict[str, Any]:
    copies = found.copies
    ratios = copies.ratio
    # The copies in the order in which they come nearest.
    order = np.argsort(ratios, kind="stable")[:_LISTED]
    return {
        "looked_at": len(ratios),
        "copy_share": float((ratios < COPY_RATIO).mean()),
        "ratio_quantiles": {f"{q:g}": float(np.quantile(ratios, q)) for q in _QUANTILES},
        "nearest": [
            {
                "row": found.chosen[i],
                "training_row": copies.row[i],
                "ratio": ratios[i],
                "distance": copies.distance[i],
            }
            for i in order
        ],
    }


def _number(value: float) -> float | None:
    return None if np.isnan(value) else value


def tell(found: Study, settings: Settings, console: Console) -> None:
    """Print what a person wants to know."""

    def say(title: str, text: str) -> None:
        console.print(f"{title:<13}{text}", markup=False, highlight=False, soft_wrap=True)

    say("data", _described(found.data))
    say("scale", _scale(found, settings))
    if found.held_out.source is found.data:
        say("held out", f"{found.held_count} rows at random (seed {settings.seed}); "
            f"{len(found.train)} remain for training")  # fmt: skip
    else:
        say("held out", _described(found.held_out.source))
    say(
        "shells",
        f"width c = {found.width:g} of at most {found.data.rows.width / 4:g}; "
        f"a shell holds {found.own_mass:.4%} of its own row's noise",
    )
    console.print(_levels(found))
    _tell_zone(found, say)
    _tell_copies("held out", found.held_out, say)
    if found.samples is not None:
        say("samples", _described(found.samples.source))
        equal = len(found.samples.same)
        say("", f"{equal} of {len(found.samples.chosen)} are training rows, number for number")
        _tell_copies("", found.samples, say)
    for warning in found.warnings:
        console.print(f"warning: {warning}", markup=False, highlight=False, soft_wrap=True)


def _described(source: Source) -> str:
    rows: Rows = source.rows
    repeats, constant = len(source.repeats), len(source.survey.constant)
    text = f"{rows.path}: {len(rows)} rows of shape {rows.row_shape}, {rows.dtype}; "
    text += f"{repeats} repeat an earlier row" + (" and are left out" if repeats else "")
    if repeats:
        first = source.repeats[0]
        text += f" (the first: {first} = {source.first[first]})"
    text += f"; {constant} constant"
    return text + (f" (the first: {source.survey.constant[0]})" if constant else "")


def _scale(found: Study, settings: Settings) -> str:
    seen, (factor, shift) = found.data.survey, found.scale
    numbers = f"numbers from {seen.low:.4g} to {seen.high:.4g}, root mean square distance of rows"
    numbers += f" from their mean {seen.radius:.4g}"
    done = "as stored" if found.scale == (1.0, 0.0) else f"times {factor:.6g} plus {shift:.6g}"
    return f"{settings.scale}: {done}; {numbers}"


def _levels(found: Study) -> Table:
    """Evenly thinned levels, and the zone's ends."""
    curves, zone = found.curves, found.zones[0]
    table = Table(title="y = x + sigma z", title_justify="left")
    for name in ("sigma", "W, one row decides", "C, supervised", ""):
        table.add_column(name, justify="right")
    logs = np.log(curves.sigmas)
    wanted = np.linspace(logs[0], logs[-1], _SHOWN_LEVELS)
    shown = {int(np.abs(logs - level).argmin()) for level in wanted}
    shown |= set(np.flatnonzero(np.isin(curves.sigmas, [zone.low, zone.high])).tolist())
    for i in sorted(shown):
        sigma, weight, weight_error, share, share_error = (float(part[i]) for part in curves)
        danger = "danger" if zone.low <= sigma <= zone.high else ""
        table.add_row(
            f"{sigma:.4g}", f"{weight:.3f} ± {weight_error:.3f}",
            f"{share:.3f} ± {share_error:.3f}", danger,
        )  # fmt: skip
    return table


def _tell_zone(found: Study, say: Any) -> None:
    zone = found.zones[0]
    if np.isnan(zone.low):
        say(
            "danger zone",
            f"none: at no level are W and C both at least {zone.threshold:g}, so no gap is "
            "recommended",
        )
        return
    steps = [zone.low / zone.next_below - 1, zone.next_above / zone.high - 1]
    known = [step for step in steps if np.isfinite(step)]
    exact = f", ends to {max(known):.1%}" if known else ""
    say("danger zone", f"sigma in [{zone.low:.4g}, {zone.high:.4g}]: W and C are both at least "
        f"{zone.threshold:g}{exact}")  # fmt: skip
    for other in sorted(found.zones[1:]):
        ends = "none" if np.isnan(other.low) else f"[{other.low:.4g}, {other.high:.4g}]"
        say("", f"at {other.threshold:g} instead: {ends}")
    gap = gap_of(found)
    assert gap is not None  # there is a zone
    say("gap", f"sigma in [{gap[0]:.4g}, {gap[1]:.4g}], to be left out of training: "
        f"gap_hyper({found.data_scale:.4g}, gap=({gap[0]:.4g}, {gap[1]:.4g}))")  # fmt: skip
    say("", "widen it downwards while samples are still copies")


def _tell_copies(title: str, found: Found, say: Any) -> None:
    data = _copies(found)
    quantiles = data["ratio_quantiles"]
    shown = ", ".join(f"{float(q):.0%} {value:.3f}" for q, value in quantiles.items())
    say(
        title,
        f"{data['copy_share']:.2%} of {data['looked_at']} have a nearest row closer than 1/3 of "
        "the second nearest",
    )
    say("", f"quantiles of that ratio: {shown}")

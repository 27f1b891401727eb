"""The findings in words, as JSON and as a list of files."""

from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from jaxlab.core.environment import describe_environment
from jaxlab.order.check import Gap
from jaxlab.order.model import Learner
from jaxlab.order.sources import Source
from jaxlab.order.study import Settings, Study

__all__ = ["Findings", "order_text", "orders_of", "ranks_of", "summary", "tell", "trust"]

_LISTED = 5


class Findings(NamedTuple):
    """All that is told.

    Attributes:
        target: The target's file.
        sources: Files by name.
        settings: What decides the numbers.
        learner: The model.
        study: Margins and scores.
        step_size: Of SGD, if it was given.
        gaps: Predicted and measured for it.
        changes: Of the target's loss after training in this and other orders, if they were tried.
        warnings: What the numbers should not be read without.
    """

    target: Source
    sources: list[Source]
    settings: Settings
    learner: Learner
    study: Study
    step_size: float | None
    gaps: list[Gap]
    changes: dict[str, float]
    warnings: list[str]


def order_text(found: Findings) -> str:
    """The files, first trained first, one a line."""
    return "".join(f"{found.sources[i].name}\n" for i in found.study.order)


def ranks_of(keys: np.ndarray) -> np.ndarray:
    """From 1, ascending, ties in the order given.

    Example:
        >>> ranks_of(np.array([0.5, -1.0, 2.0])).tolist()
        [2, 1, 3]
    """
    ranks = np.empty(len(keys), int)
    ranks[np.argsort(keys, kind="stable")] = np.arange(1, len(keys) + 1)
    return ranks


def orders_of(study: Study) -> dict[str, np.ndarray]:
    """This order, its reverse, and two that need no Hessian."""
    return {
        "this order": study.order,
        "its reverse": study.order[::-1],
        "most aligned last": np.argsort(study.alignment, kind="stable"),
        "largest gradient first": np.argsort(-study.norms, kind="stable"),
    }


def trust(study: Study) -> str:
    """Whether both halves of the sequences give one order, in words."""
    correlation, chance = study.noise.rank_correlation, study.noise.chance
    if np.isnan(correlation):
        return "meaningless: all scores are equal"
    more = "--sequences" if study.noise.target_cosine > 0.5 else "--target-sequences"
    if correlation < 2 * chance:
        return (
            f"not resolved, since halves agree within twice what chance does: more {more} may help"
        )
    if correlation < 0.8:
        return f"resolved in part, its ends better than its middle: more {more} may help"
    return "resolved"


def summary(found: Findings) -> dict[str, Any]:
    """Everything, for programs; all but the seconds are the same for the same files and flags."""
    study, learner = found.study, found.learner
    names = [found.sources[i].name for i in study.order]
    placed = study.edges[np.ix_(study.order, study.order)]
    ranks = _ranks(study)
    return {
        "order": names,
        "curriculum": [
            {
                "rank": place,
                "file": found.sources[i].name,
                "score": study.scores[i],
                "scores_of_halves": study.noise.scores[:, i],
                "alignment": study.alignment[i],
                "alignment_rank": ranks["alignment"][i],
                "gradient_norm": study.norms[i],
                "gradient_norm_rank": ranks["norm"][i],
                "tokens": study.tokens[i],
                "digest": found.sources[i].digest,
            }
            for place, i in enumerate(study.order, start=1)
        ],
        "margins": {"names": names, "sigma": placed},
        "next_margins": np.diagonal(placed, 1),
        "cyclic_share": study.cyclic_share,
        "costs": {"order": study.costs[0], "reverse": study.costs[1]},
        "noise": {
            "rank_correlation_of_halves": study.noise.rank_correlation,
            "chance": study.noise.chance,
            "pairs_of_same_sign": study.noise.same_sign,
            "target_cosine_of_halves": study.noise.target_cosine,
            "verdict": trust(study),
        },
        "step_size": found.step_size,
        "predicted": None if found.step_size is None else _predicted(found),
        "target": {"file": found.target.path, "digest": found.target.digest},
        "model": {
            "name": found.settings.model,
            "digest": learner.digest,
            "trained_numbers": learner.size,
        },
        "settings": vars(found.settings),
        "seconds": study.seconds,
        "warnings": found.warnings,
        "environment": describe_environment(),
    }


def _predicted(found: Findings) -> dict[str, Any]:
    assert found.step_size is not None
    square = found.step_size**2
    placed = found.study.edges[np.ix_(found.study.order, found.study.order)]
    return {
        "order_less_reverse": square * (found.study.costs[0] - found.study.costs[1]),
        "next_gaps": square * np.diagonal(placed, 1),
        "checked": [
            {
                "first": found.sources[gap.first].name,
                "second": found.sources[gap.second].name,
                "predicted": gap.predicted,
                "measured": gap.measured,
            }
            for gap in found.gaps
        ],
        "rehearsed": found.changes,
    }


def _ranks(study: Study) -> dict[str, np.ndarray]:
    return {"alignment": ranks_of(study.alignment), "norm": ranks_of(-study.norms)}


def tell(found: Findings, console: Console) -> None:
    """Print what a person wants to know."""

    def say(title: str, text: str) -> None:
        console.print(f"{title:<10}{text}", markup=False, highlight=False, soft_wrap=True)

    study, settings, learner = found.study, found.settings, found.learner
    say("target", f"{found.target.path}: {found.target.characters} characters, "
        f"{settings.target_sequences} sequences at most")  # fmt: skip
    say("sources", f"{len(found.sources)} files, {settings.sequences} sequences of at most "
        f"{settings.tokens} tokens each (seed {settings.seed})")  # fmt: skip
    blocks = "the last block" if settings.layers == 1 else f"the last {settings.layers} blocks"
    say("model", f"{settings.model}: {blocks} of {_depth(learner)} learn, {learner.size} numbers")
    if sum(study.stored):
        say("resumed", f"{study.stored[0]} gradients and {study.stored[1]} products of an earlier "
            "run were there")  # fmt: skip
    console.print(_table(found))
    say("cyclic", f"{study.cyclic_share:.1%} of the squared margins go round in circles, which no "
        "ranking can follow")  # fmt: skip
    noise = study.noise
    say("noise", "orders of two halves of all sequences: rank correlation "
        f"{noise.rank_correlation:.2f} (chance: 0 ± {noise.chance:.2f})")  # fmt: skip
    say("", f"{noise.same_sign:.0%} of the pairs' margins have one sign in both halves; the "
        f"target's gradients have cosine {noise.target_cosine:.2f}")  # fmt: skip
    say("", f"the order is {trust(study)}")
    say("rules", _rules(study))
    if found.step_size is not None:
        _tell_step(found, say)
    seconds = study.seconds
    say("time", f"target {seconds['target']:.1f} s, gradients {seconds['gradients']:.1f} s, "
        f"Hessian products {seconds['products']:.1f} s")  # fmt: skip
    for warning in found.warnings:
        console.print(f"warning: {warning}", markup=False, highlight=False, soft_wrap=True)


def _depth(learner: Learner) -> int:
    lower = 0 if learner.lower is None else learner.lower.config.num_layers
    return lower + learner.upper.config.num_layers


def _table(found: Findings) -> Table:
    study = found.study
    title = "first trained first; in brackets the rank by that rule alone"
    table = Table(title=title, title_justify="left")
    table.add_column("#", justify="right")
    table.add_column("source", overflow="fold")
    for name in ("score", "of halves", "alignment", "gradient"):
        table.add_column(name, justify="right", no_wrap=True)
    ranks = _ranks(study)
    for place, i in enumerate(study.order, start=1):
        halves = " ".join(_short(float(score), 2) for score in study.noise.scores[:, i])
        table.add_row(
            str(place), found.sources[i].name, _short(float(study.scores[i]), 3), halves,
            f"{study.alignment[i]:+.3f} ({ranks['alignment'][i]})",
            f"{study.norms[i]:.3g} ({ranks['norm'][i]})",
        )  # fmt: skip
    return table


def _short(value: float, digits: int) -> str:
    """So many digits, and no exponent where that is readable."""
    if value == 0 or not 1e-3 <= abs(value) < 1e6:
        return f"{value:+.{digits}g}"
    return np.format_float_positional(
        value, precision=digits, unique=False, fractional=False, trim="-", sign=True
    )


def _rules(study: Study) -> str:
    """How much of the order two rules without Hessians would have given."""
    place = ranks_of(study.scores)
    told = [
        f"{name} {np.corrcoef(place, np.argsort(order))[0, 1]:+.2f}"
        for name, order in list(orders_of(study).items())[2:]
    ]
    return f"rank correlations with simpler orders: {', '.join(told)}"


def _tell_step(found: Findings, say: Any) -> None:
    predicted = _predicted(found)
    say("step size", f"{found.step_size:g}: one step on each source in this order should end "
        f"{predicted['order_less_reverse']:+.3g} nats a token off the reverse order")  # fmt: skip
    for gap in found.gaps:
        first, second = (found.sources[k].name for k in (gap.first, gap.second))
        ratio = gap.measured / gap.predicted
        say("", f"{first} before {second}: predicted {gap.predicted:+.3g}, measured "
            f"{gap.measured:+.3g} ({ratio:.2f} of it)")  # fmt: skip
    if found.changes:
        told = [f"{name} {change:+.7g}" for name, change in found.changes.items()]
        say("rehearsed", f"change of the target's loss by one step on each source: {told[0]}")
        for line in told[1:]:
            say("", line)
    if any(not 0.5 < gap.measured / gap.predicted < 2 for gap in found.gaps):
        say("", "the step is too large (or too small for float32) for these margins")

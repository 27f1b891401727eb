"""What the experiment ``demoa`` concludes from its metrics, and how it draws them."""

from typing import Any

import numpy as np

from jaxlab.experiment.figures import PALETTE, method_style
from jaxlab.experiment.metrics import Row, select
from jaxlab.experiment.verdict import Criterion, Report, ReportTable
from jaxlab.optim.byzantine_theory import byzantine_majority_probability

__all__ = ["draw", "judge", "label"]

# The setting of the experiment, as its title says.
_CLIENTS, _LIARS, _PARTICIPATION = 20, 4, 0.1
_LOUD = ("flip x10", "noise 5")
_METHODS = ("DeMoA", "naive")
_SHARINGS = ("digits", "digits, sorted", "MNIST")


def label(rule: str, attack: str) -> str:
    """How accuracy under a rule and an attack is called.

    Example:
        >>> label("RFA", "flip x10")
        'RFA / flip x10'
    """
    return f"{rule} / {attack}"


def judge(rows: list[Row]) -> Report:
    """Criteria, notes and tables."""
    tables = [table for name in _SHARINGS if (table := _table(rows, name)).rows]
    return Report(_criteria(rows), _notes(rows), tables)


def _final(
    rows: list[Row], method: str, rule: str, attack: str, dataset: str = "digits"
) -> float | None:
    """The mean over seeds of the last accuracy; None if it was not run."""
    found = select(rows, method=method, metric=label(rule, attack), dataset=dataset)
    if not found:
        return None
    last = max(row.step for row in found)
    return float(np.mean([row.value for row in found if row.step == last]))


def _number(rows: list[Row], *where: str) -> float:
    value = _final(rows, *where)
    return np.nan if value is None else value


def _criteria(rows: list[Row]) -> list[Criterion]:
    criteria = []
    for rule in ("median", "RFA"):
        clean = _number(rows, "DeMoA", rule, "none")
        for attack in _LOUD:
            ours, theirs = (_number(rows, method, rule, attack) for method in _METHODS)
            name = label(rule, attack)
            criteria += [
                Criterion(f"DeMoA, {name}", ours, at_least=0.9),
                Criterion(f"naive, {name}", theirs, at_most=0.5, shape=True),
                Criterion(
                    f"DeMoA, {name}, less than without attack by", clean - ours, at_most=0.03
                ),
                Criterion(f"DeMoA less naive, {name}", ours - theirs, at_least=0.3, shape=True),
            ]
    criteria.append(_majority_criterion(rows))
    sorted_noise = _number(rows, "DeMoA", "RFA", "noise 5", "digits, sorted")
    criteria.append(Criterion("DeMoA, RFA / noise 5, sorted labels", sorted_noise, at_least=0.9))
    ahead = [_number(rows, m, "RFA", "flip x10", "digits, sorted") for m in _METHODS]
    name = "DeMoA less naive, RFA / flip x10, sorted labels"
    criteria.append(Criterion(name, ahead[0] - ahead[1], at_least=0.3, shape=True))
    if select(rows, dataset="MNIST"):
        clean = _number(rows, "DeMoA", "RFA", "none", "MNIST")
        for attack in _LOUD:
            ours, theirs = (_number(rows, method, "RFA", attack, "MNIST") for method in _METHODS)
            name = f"MNIST, {label('RFA', attack)}"
            less = Criterion(
                f"DeMoA, {name}, less than without attack by", clean - ours, at_most=0.05
            )
            ahead = Criterion(f"DeMoA less naive, {name}", ours - theirs, at_least=0.3, shape=True)
            criteria += [less, ahead]
    return criteria


def _majority_criterion(rows: list[Row]) -> Criterion:
    """Four standard errors of the mean count around the exact expectation."""
    found = select(rows, metric="majority")
    seeds = len({row.seed for row in select(rows, metric=label("RFA", "none"))})
    rounds = max(row.step for row in select(rows, dataset="digits"))
    with_chance = float(byzantine_majority_probability(_CLIENTS, _LIARS, _PARTICIPATION))
    mean = with_chance * rounds
    error = 4 * (mean * (1 - with_chance) / seeds) ** 0.5
    return Criterion(
        "rounds with a Byzantine majority, mean over seeds",
        len(found) / seeds, mean - error, mean + error,
    )  # fmt: skip


def _rules(rows: list[Row], dataset: str) -> list[str]:
    return _parts(rows, dataset, 0)


def _attacks(rows: list[Row], dataset: str) -> list[str]:
    return _parts(rows, dataset, 1)


def _parts(rows: list[Row], dataset: str, side: int) -> list[str]:
    metrics = [row.metric for row in select(rows, dataset=dataset) if " / " in row.metric]
    return list(dict.fromkeys(metric.split(" / ")[side] for metric in metrics))


def _table(rows: list[Row], dataset: str) -> ReportTable:
    attacks = _attacks(rows, dataset)
    lines = []
    for rule in _rules(rows, dataset):
        cells = []
        for attack in attacks:
            pair = [_final(rows, method, rule, attack, dataset) for method in _METHODS]
            cells.append(" / ".join("-" if v is None else f"{v:.3f}" for v in pair))
        lines.append((rule, *cells))
    return ReportTable(f"{dataset}: accuracy, DeMoA / naive", ("rule", *attacks), lines)


def _notes(rows: list[Row]) -> list[str]:
    notes = [
        "The cache holds one vector per client: 20 times the model's memory on the server; a "
        "round uploads 2 vectors on average, DeMoA as many as naive."
    ]
    for dataset in _SHARINGS:
        better = []
        for rule in _rules(rows, dataset):
            for attack in _attacks(rows, dataset):
                ours, theirs = (_final(rows, m, rule, attack, dataset) for m in _METHODS)
                if ours is not None and theirs is not None and theirs > ours + 0.005:
                    better.append(f"{label(rule, attack)} ({theirs:.3f} against {ours:.3f})")
        if better:
            notes.append(f"{dataset}: naive is better than DeMoA under " + ", ".join(better))
    weak = [
        f"{label(rule, attack)} ({value:.3f}{', sorted labels' if 'sorted' in dataset else ''})"
        for dataset in _SHARINGS
        for rule in _rules(rows, dataset)
        for attack in _attacks(rows, dataset)
        if rule != "mean"
        and (value := _final(rows, "DeMoA", rule, attack, dataset)) is not None
        and value < 0.8
    ]
    if weak:
        notes.append("DeMoA stays below 0.8 under " + ", ".join(weak))
    for attack in ("none", *_LOUD):
        ours = _number(rows, "DeMoA", "RFA", attack)
        oracle = _number(rows, "everybody heard", "RFA", attack)
        bare = _number(rows, "no momentum", "RFA", attack)
        notes.append(
            f"digits, RFA, {attack}: {ours:.3f}; {oracle:.3f} if everybody is heard in every "
            f"round, at ten times the uploads; {bare:.3f} without momentum"
        )
    return notes


def draw(rows: list[Row], figure: Any) -> None:
    """Four panels: two histories, the two grids of rules and attacks, and the harder inputs."""
    (history, ours), (theirs, harder) = figure.subplots(2, 2)
    _draw_history(rows, history)
    _draw_grid(rows, ours, "DeMoA", "(b) DeMoA: test accuracy")
    _draw_grid(rows, theirs, "naive", "(c) naive: test accuracy")
    _draw_harder(rows, harder)


def _draw_history(rows: list[Row], axes: Any) -> None:
    first = min(row.seed for row in rows)
    for method in _METHODS:
        for attack, line in (("none", ":"), ("flip x10", "-")):
            metric = label("RFA", attack)
            found = select(rows, method=method, metric=metric, dataset="digits", seed=first)
            axes.plot(
                [row.step for row in found], [row.value for row in found], linestyle=line,
                color=method_style(method)["color"],
                label=f"{method}, {'no attack' if attack == 'none' else 'flipped signs'}",
            )  # fmt: skip
    found = select(rows, metric="majority", seed=first)
    axes.plot(
        [row.step for row in found], [0.03] * len(found), "|", color=PALETTE["black"],
        markersize=12, markeredgewidth=1.0, label="most of the heard lie",
    )  # fmt: skip
    axes.set(
        xlabel="round", ylabel="test accuracy (share)", ylim=(0, 1.05),
        title="(a) geometric median: 20 clients, 4 lie, 10 % heard",
    )  # fmt: skip
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.legend(loc="center right")


def _draw_grid(rows: list[Row], axes: Any, method: str, title: str) -> None:
    rules, attacks = _rules(rows, "digits"), _attacks(rows, "digits")
    table = np.full((len(rules), len(attacks)), np.nan)
    for i, rule in enumerate(rules):
        for j, attack in enumerate(attacks):
            value = _final(rows, method, rule, attack)
            if value is not None:
                table[i, j] = value
                shade = "white" if value < 0.55 else "black"
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=shade, fontsize=14)
    axes.imshow(table, vmin=0, vmax=1, cmap="cividis", aspect="auto")
    axes.set_xticks(range(len(attacks)), attacks, rotation=20, ha="right")
    axes.set_yticks(range(len(rules)), rules)
    axes.grid(visible=False)
    axes.set(xlabel="attack", ylabel="robust mean", title=title)


def _draw_harder(rows: list[Row], axes: Any) -> None:
    groups = [
        (dataset, rule, attack)
        for dataset, rules in (
            ("digits, sorted", ("median", "RFA", "NNM + median")), ("MNIST", ("RFA",))
        )
        for rule in rules
        for attack in _LOUD
        if select(rows, dataset=dataset, metric=label(rule, attack))
    ]  # fmt: skip
    places = np.arange(len(groups))[::-1]
    for offset, method in zip((0.2, -0.2), _METHODS, strict=True):
        values = [_number(rows, method, rule, attack, dataset) for dataset, rule, attack in groups]
        axes.barh(places + offset, values, 0.4, color=method_style(method)["color"], label=method)
    names = [
        f"{'MNIST' if dataset == 'MNIST' else 'sorted'}: {rule}, {attack.split()[0]}"
        for dataset, rule, attack in groups
    ]
    axes.set_yticks(places, names)
    axes.set(
        xlabel="test accuracy (share)", ylabel="input: robust mean, attack", xlim=(0, 1.4),
        title="(d) sorted labels; MNIST",
    )  # fmt: skip
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.legend(loc="upper right")

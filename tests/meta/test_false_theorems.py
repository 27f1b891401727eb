"""The false theorems are false where the literature says, and the true ones beside them hold.

The counterexamples below are written by hand from the theorems' sources, apart from the claims.
"""

import importlib.util
import itertools
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.stats

from jaxlab.claims import Probability, climb
from jaxlab.claims.command import EFFORTS
from jaxlab.claims.outside import evaluate_outside
from jaxlab.claims.search import tolerance_of

ROOT = Path(__file__).parents[2]


def command():
    path = ROOT / "benchmarks/false_theorems.py"
    spec = importlib.util.spec_from_file_location("jaxlab_false_theorems", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BENCH = {name.split("/")[1]: pair for name, pair in command().bench().items()}


def floats(*rows):
    return tuple(np.asarray(row, dtype=float) for row in rows)


def padded(entries, size):
    return np.concatenate([entries, np.zeros(size - len(entries))])


def units(n, *where):
    matrices = np.zeros((len(where), n, n))
    for matrix, (i, j) in zip(matrices, where, strict=True):
        matrix[i, j] = 1
    return matrices


def wilkinson(n):
    matrix = np.eye(n) - np.tril(np.ones((n, n)), -1)
    matrix[:, -1] = 1
    return matrix


def greenbaum(kappa=25.0, steps=3):
    """Eigenvalues and error for which conjugate gradients are as slow as Chebyshev's bound."""
    nodes = np.cos(np.pi * np.arange(steps + 1) / steps)
    values = (kappa + 1) / 2 - (kappa - 1) / 2 * nodes
    gaps = np.abs(values[:, None] - values) + np.eye(steps + 1)
    return values, np.sqrt(1 / gaps.prod(1)) / values


AVERAGES = np.tril(np.ones((20, 20))) / np.arange(1, 21)[:, None]
HARDY = np.linalg.svd(AVERAGES)
BITS = np.array(list(itertools.product((0, 1), repeat=4)))

# The instance, what restores the true theorem, and how far from equality that is there.
EXTREMAL = {
    "kantorovich": (floats([1, 100], [1, 1]), {"factor": 1.0}, 0),
    "polya_szego": (floats([3] * 6 + [1] * 6, [1] * 6 + [3] * 6), {"factor": 1.0}, 0),
    "hoeffding_lemma": (floats([0, 1], [0.5, 0.5], 0.1), {"factor": 1.0}, 1e-3),
    "pinsker": (floats([0.51, 0.49], [0.5, 0.5]), {"factor": 1.0}, 1e-3),
    "cantelli": (floats([1, 0], [0.2, 0.8]), {"factor": 1.0}, 0),
    "mean_median": (np.repeat([0.0, 1.0], [11, 10]), {"factor": 1.0}, 0),
    "samuelson": (padded([1.0], 20), {"factor": 1.0}, 0),
    "log_sum_exp": (
        (np.repeat([0.0, -60.0], [2, 10]), padded([1.0, -1.0], 12)), {"factor": 1.0}, 1e-12
    ),
    "hardy": (np.abs(HARDY[2][0]), {"constant": HARDY[1][0] ** 2}, 0),
    "khintchine": (padded([1.0, 1.0], 10), {"factor": 1.0}, 0),
    "hypercontractivity": (
        np.prod(1 + 0.1 * (-1.0) ** BITS, axis=1), {"noise": 1 / math.sqrt(3)}, 1e-3
    ),
    "bottcher_wenzel": (units(4, (0, 1), (1, 0)), {"factor": 1.0}, 0),
    "hadamard": (scipy.linalg.hadamard(8).astype(float), {"factor": 1.0}, 0),
    "pivot_growth": (wilkinson(4), {"factor": 1.0}, 0),
    "top_k": (np.ones(20), {"factor": 1.0}, 0),
    "longest_first": (np.array([5.0, 5, 4, 4, 3, 3, 3]), {"factor": 1.0}, 0),
    "gradient_descent": (floats([1, 100], [1, 1]), {"factor": 1.0}, 0),
    "steepest_descent": (floats([1, 100], [100, 1]), {"factor": 1.0}, 0),
    "chebyshev_bound": (greenbaum(), {"factor": 1.0}, 0),
    "smooth_convex": (floats([1], [1 / 21], [1]), {"summand": 2.0}, 0),
    "descent_ascent": (floats([[1, 5], [-5, 1]], [1, 0]), {"factor": 2.0}, 0),
}  # fmt: skip


def reflection(degrees):
    angle = math.radians(degrees)
    return np.array([[math.cos(angle), math.sin(angle)], [math.sin(angle), -math.cos(angle)]])


# The instance and the published or elementary margin there, if one is known in closed form.
COUNTEREXAMPLES = {
    # B^2 - A^2 = [[3, 1], [1, 0]], with eigenvalues (3 +- sqrt 13) / 2
    "square_is_monotone": (
        floats([[1, 1], [1, 1]], [[1, 0], [0, 0]]), (3 - 13**0.5) / (3 + 13**0.5)
    ),
    # Three reflections whose sum is 0: the right side is 2 cosh (cosh^2 - 3/2 sinh^2) < 0.
    "golden_thompson_of_three": (
        2 * np.stack([reflection(0), reflection(120), reflection(240)]), None
    ),
    "median_in_hull": (floats(np.repeat(np.eye(4)[:3], 5, axis=0), [1, 1, 1, 0]), -1.0),
    # Lessard, Recht and Packard 2016, (4.11): a cycle of three points.
    "heavy_ball": (floats([0.0, 1.0, 2.0], [25, 25, 1, 25], 3.3), None),
    # Reddi, Kale and Kumar 2018, Theorem 1, C = 3.
    "adam": (floats([3, -1, -1, 3, -1, -1], 1.0, 1.0, 0.0, 0.1, 0.01), None),
    # Kantorovich at equality: the first residual grows (kappa - 1) / (2 sqrt kappa) times.
    "residuals_decrease": (floats([1, 100], [1, 0.001]), math.log(400 / 99**2)),
    "nesterov_descends": (floats([1, 10, 100], [0, 1, 0]), None),
    # log(2 + 2 cosh x): Newton diverges for |x| > 2.18.
    "newton_descends": (floats([[1], [-1]], [3]), None),
    # Two narrow parts at -2 and 2, seen in the middle.
    "flat_covariance": (
        floats([0.5, 0.5], [[-2], [2]], 0.01, 1.0, [0.0]), -math.log(0.01 / 1.01 + 4 / 1.01**2)
    ),
    "bounded_weights": (
        floats(3.0, 2.0, 20.0),
        math.log(1e4) - scipy.stats.t.logpdf(20, 3) + scipy.stats.norm.logpdf(20, scale=2),
    ),
    # Six tokens at (0.51, 0.49), four at (0, 1): 2 (0.6 * 0.306 + 0.4 * 0.694).
    "switch_loss": (
        np.log([[0.51, 0.49]] * 6 + [[1e-300, 1]] * 4), math.log(2 * (0.6 * 0.306 + 0.4 * 0.694))
    ),
    "divergence_triangle": (floats([0.5, 0.5], [0.1, 0.9], [0.01, 0.99]), None),
    "jeffreys_triangle": (floats([0.5, 0.5], [0.1, 0.9], [0.01, 0.99]), None),
}  # fmt: skip


def rebuild(name, instance):
    """The claim's own named tuple around the plain arrays."""
    family = next(iter(BENCH[name][0].families.values()))
    shape = jax.eval_shape(lambda key: draw_shape(family, key), jax.random.key(0))
    return type(shape)(*instance) if hasattr(shape, "_fields") else instance


def draw_shape(family, key):
    from jaxlab.claims.families import draw

    return draw(family, key, {})


def margins(name, instance, **truth):
    claim = BENCH[name][0]
    instance = rebuild(name, instance)
    said = evaluate_outside(lambda i: claim.conclusion(i, **truth).margin, instance)
    slack = evaluate_outside(lambda i: jnp.asarray(claim.assumptions(i)), instance)
    assert np.all(slack >= -tolerance_of(claim)), "the counterexample violates the assumptions"
    return np.asarray(said)


@pytest.mark.parametrize("name", EXTREMAL)
def test_the_true_constant_is_attained_and_the_false_one_fails(name):
    instance, truth, distance = EXTREMAL[name]
    # Rounding of a few dozen operations, relative to sides that are compared by their ratio.
    assert -1e-12 <= margins(name, instance, **truth).min() <= distance + 1e-12
    assert margins(name, instance).min() < -1e-3


@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_folklore_fails_on_the_known_counterexample(name):
    instance, known = COUNTEREXAMPLES[name]
    found = margins(name, instance)
    if known is None:
        assert np.nanmin(found) < -1e-3
    else:
        assert found.ravel()[0] == pytest.approx(known, rel=1e-9)


def mean_and_error(name, instance):
    said = BENCH[name][0].conclusion(rebuild(name, instance), key=jax.random.key(0))
    values = np.asarray(said.events if isinstance(said, Probability) else said.values)
    return values.mean(), values.std() / math.sqrt(len(values)), float(said.bound)


def by_enumeration(target, proposal, values):
    """The mean of the self-normalised estimate over all draws of four symbols."""
    drawn = np.array(list(itertools.product(range(len(target)), repeat=4)))
    weights = (target / proposal)[drawn]
    estimates = (weights * values[drawn]).sum(1) / weights.sum(1)
    return proposal[drawn].prod(1) @ estimates


SAMPLING = floats([0.6, 0.1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1, 0.6], [0, 1, 1, 1, 1])
STOCHASTIC = {
    "normal_interval": (floats(0.0, 1.0), 2 * scipy.stats.t.sf(1.96, df=4)),
    "self_normalised_is_unbiased": (SAMPLING, by_enumeration(*SAMPLING)),
}


@pytest.mark.parametrize("name", STOCHASTIC)
def test_stochastic_folklore_misses_by_the_known_amount(name):
    instance, known = STOCHASTIC[name]
    mean, error, bound = mean_and_error(name, instance)
    assert abs(mean - known) < 5 * error
    assert known > bound + 10 * error


@pytest.mark.parametrize(("name", "instance"), [("deviation_is_unbiased", 3.0), ("peeking", 0.5)])
def test_stochastic_folklore_misses(name, instance):
    mean, error, bound = mean_and_error(name, jnp.asarray(instance))
    assert mean > bound + 10 * error


def test_every_false_theorem_is_held_to_a_counterexample():
    others = {"deviation_is_unbiased", "peeking"}
    assert set(BENCH) == set(EXTREMAL) | set(COUNTEREXAMPLES) | set(STOCHASTIC) | others
    assert len(BENCH) >= 24
    assert all(claim.expected == "refuted" for claim, _ in BENCH.values())
    assert {name for name, (_, kind) in BENCH.items() if kind != "folklore"} == set(EXTREMAL)


def test_the_stored_numbers_are_of_these_theorems():
    stored = json.loads((ROOT / "docs/false_theorems.json").read_text())
    statements = {row["name"]: row["statement"] for row in stored["rows"]}
    assert statements == {name: claim.statement for name, (claim, _) in BENCH.items()}


@pytest.mark.parametrize("name", ["residuals_decrease", "samuelson", "normal_interval"])
def test_the_ladder_breaks_the_cheap_ones(name):
    report = climb(BENCH[name][0], effort=EFFORTS["quick"])
    assert report.ok
    assert report.verdict == "refuted"


def test_the_command_measures_one_theorem(tmp_path, capsys):
    file = tmp_path / "out.json"
    words = ["--only", "residuals", "--budget", "20", "--json", str(file)]
    assert command().main(words) == 0
    assert "the ladder breaks 1 of 1" in capsys.readouterr().out
    assert '"rung": "explore"' in file.read_text()
    assert command().main(["--only", "no such theorem"]) == 2

"""Robust means against ByzFL's, NumPy's and their own symmetries."""

import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from jaxlab.optim import byzantine_aggregators as rules
from jaxlab.optim import byzantine_attacks as attacks
from jaxlab.optim import byzantine_selection as selection
from jaxlab.optim import byzantine_theory as theory
from jaxlab.stats.sorting import sort_columns
from tests.oracles.byzantine_cases import CASES, matrix, ours

GOLDEN = Path(__file__).parent / "golden" / "byzfl.npz"
F = 2
VECTORS = np.random.default_rng(7).standard_normal((9, 4))

RULES = {
    "mean": rules.mean,
    "coordinate_median": rules.coordinate_median,
    "trimmed_mean": lambda v, m=None: rules.trimmed_mean(v, m, num_byzantine=F),
    "geometric_median": rules.geometric_median,
    "krum": lambda v, m=None: selection.krum(v, m, num_byzantine=F),
    "multi_krum": lambda v, m=None: selection.multi_krum(v, m, num_byzantine=F),
    "mixed median": lambda v, m=None: rules.coordinate_median(
        selection.nearest_neighbour_mixing(v, m, num_byzantine=F), m
    ),
    "centered_clipping": lambda v, m=None: rules.centered_clipping(
        v, rules.coordinate_median(v, m), m, radius=1.0
    ),
}
ROBUST = [name for name in RULES if name != "mean"]
COMPILED = {name: jax.jit(rule) for name, rule in RULES.items()}


@pytest.mark.parametrize("case", CASES)
def test_everything_equals_byzfl(case):
    vectors = matrix(case)
    found = ours(vectors, CASES[case][2])
    with np.load(GOLDEN) as golden:
        expected = {
            name.split("/")[1]: golden[name] for name in golden.files if name.startswith(f"{case}/")
        }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(
            found[name], value, rtol=0, atol=1e-13 * np.abs(vectors).max(), err_msg=name
        )


@pytest.mark.parametrize("name", RULES)
def test_order_does_not_matter(name):
    order = np.random.default_rng(0).permutation(len(VECTORS))
    rule = COMPILED[name]
    np.testing.assert_allclose(rule(VECTORS[order]), rule(VECTORS), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", RULES)
def test_moved_vectors_give_the_moved_result(name):
    rule, shift = COMPILED[name], np.array([1e3, -1e4, 0.5, 0.0])
    np.testing.assert_allclose(rule(VECTORS + shift) - shift, rule(VECTORS), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", RULES)
def test_equal_vectors_give_themselves(name):
    same = np.broadcast_to(VECTORS[0], VECTORS.shape)
    np.testing.assert_allclose(COMPILED[name](same), VECTORS[0], rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", RULES)
def test_a_mask_is_as_good_as_fewer_vectors(name):
    mask = np.array([True, False, True, True, True, False, True, True, True])
    spoiled = np.where(mask[:, None], VECTORS, 1e9)
    expected = RULES[name](jnp.asarray(VECTORS[mask]))
    np.testing.assert_allclose(
        COMPILED[name](spoiled, jnp.asarray(mask)), expected, rtol=0, atol=1e-13
    )


@pytest.mark.parametrize("name", RULES)
def test_breakdown(name):
    """Two liars of nine do not move a robust rule far; one moves the mean anywhere."""
    rule, honest = COMPILED[name], VECTORS[F:]
    lies = np.zeros((F, 4))
    results = []
    for scale in (1e3, 1e6):
        lies[:, 0] = scale
        results.append(np.asarray(rule(np.concatenate([lies, honest]))))
    near, far = results
    reach = np.abs(honest).max()
    if name == "mean":
        np.testing.assert_allclose(far[0] / near[0], 1e3, rtol=1e-2)
    else:
        assert np.abs(far).max() <= 2 * reach
        # The direction of a far liar still matters to these two, by about 1 / 1e3.
        smooth = name in ("geometric_median", "centered_clipping")
        tolerance = 1e-2 * reach if smooth else 1e-9
        np.testing.assert_allclose(near, far, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["coordinate_median", "geometric_median"])
def test_breakdown_point_is_a_half(name):
    rule = RULES[name]
    for liars, held in ((4, True), (5, False)):
        vectors = VECTORS.copy()
        vectors[:liars] = [1e8, 0, 0, 0]
        assert (np.abs(rule(jnp.asarray(vectors))).max() < 1e3) == held


@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_median_is_numpys(count):
    vectors = VECTORS[:count]
    mask = jnp.arange(9) < count
    expected = np.median(vectors, axis=0)
    np.testing.assert_array_equal(rules.coordinate_median(jnp.asarray(vectors)), expected)
    np.testing.assert_array_equal(rules.coordinate_median(jnp.asarray(VECTORS), mask), expected)


def test_trimmed_mean_is_scipys():
    expected = scipy.stats.trim_mean(VECTORS, 2 / 9, axis=0)
    np.testing.assert_allclose(RULES["trimmed_mean"](jnp.asarray(VECTORS)), expected, atol=1e-15)


def test_geometric_median_minimises_the_distance():
    found = rules.geometric_median(jnp.asarray(VECTORS), num_iters=400, smoothing=1e-9)
    best = scipy.optimize.minimize(
        lambda z: np.linalg.norm(VECTORS - z, axis=1).sum(),
        VECTORS.mean(axis=0),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-14, "maxiter": 4000, "maxfev": 4000},
    )
    np.testing.assert_allclose(found, best.x, atol=1e-6)


def test_ties_go_to_the_first():
    cross = jnp.array([[1.0, 0], [-1, 0], [0, 1], [0, -1], [50, 50]])
    np.testing.assert_array_equal(selection.krum(cross, num_byzantine=1), cross[0])
    twice = jnp.array([[0.0], [0.0], [5.0], [5.0], [90.0]])
    found = selection.minimum_diameter_average(twice, num_byzantine=2)
    np.testing.assert_allclose(found, [5 / 3], rtol=1e-15)


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_distances_are_exact_far_from_the_origin(shift):
    vectors = VECTORS + shift
    vectors[0] = 1e8
    expected = ((vectors[:, None] - vectors[None]) ** 2).sum(axis=-1)
    found = selection.squared_distances(jnp.asarray(vectors))
    np.testing.assert_allclose(found[1:, 1:], expected[1:, 1:], rtol=1e-12, atol=1e-8 * (shift > 0))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-8 * (shift > 0))


def test_buckets_hold_everybody_once():
    vectors = jnp.eye(7)
    buckets = selection.bucketing(jax.random.key(0), vectors, size=3)
    sizes = np.array([3, 3, 1])
    assert buckets.shape == (3, 7)
    np.testing.assert_allclose(buckets.sum(axis=1), 1, atol=1e-15)
    np.testing.assert_allclose(sizes @ np.asarray(buckets), 1, atol=1e-15)
    np.testing.assert_array_equal((buckets > 0).sum(axis=1), sizes)
    one = selection.bucketing(jax.random.key(1), jnp.asarray(VECTORS), size=1)
    np.testing.assert_array_equal(np.sort(one, axis=0), np.sort(VECTORS, axis=0))


def test_trees_are_long_vectors():
    tree = {"a": VECTORS[:, 0], "b": VECTORS[:, 1:].reshape(9, 3, 1)}
    for name in ROBUST:
        found = rules.over_trees(RULES[name])(tree)
        expected = RULES[name](jnp.asarray(VECTORS))
        np.testing.assert_allclose(found["a"], expected[0], atol=1e-15)
        np.testing.assert_allclose(found["b"][:, 0], expected[1:], atol=1e-15)


@pytest.mark.parametrize("name", ["geometric_median", "centered_clipping"])
def test_gradients_are_finite_where_distances_vanish(name):
    same = jnp.ones((4, 3))
    gradient = jax.grad(lambda v: RULES[name](v).sum())(same)
    np.testing.assert_allclose(gradient.sum(), 3.0, atol=1e-12)


def test_attacks_leave_the_honest_alone():
    liars = jnp.array([False] * 7 + [True] * 2)
    v = jnp.asarray(VECTORS)
    mean, std = VECTORS[:7].mean(axis=0), VECTORS[:7].std(axis=0, ddof=1)
    expected = {
        "flip": (attacks.sign_flip(v, liars), -10 * mean),
        "manipulate": (attacks.inner_product_manipulation(v, liars, scale=3.0), -3 * mean),
        "little": (attacks.a_little_is_enough(v, liars, deviations=1.5), mean - 1.5 * std),
        "mimic": (attacks.mimic(v, liars), VECTORS[0]),
        "far": (attacks.far_away(v, liars, scale=7.0), [7, 0, 0, 0]),
    }
    for sent, lie in expected.values():
        np.testing.assert_array_equal(sent[:7], VECTORS[:7])
        np.testing.assert_allclose(sent[7:], np.broadcast_to(lie, (2, 4)), atol=1e-14)
    noise = attacks.gaussian_noise(jnp.zeros((2000, 4)), jnp.arange(2000) > 0, jax.random.key(0))
    np.testing.assert_allclose(noise[1:].std(axis=0), 5.0, rtol=0.08)  # five standard errors
    assert abs(float(noise[1:].mean())) < 5 * 5 / 8000**0.5


def test_labels_are_flipped_as_scipy_would_not():
    np.testing.assert_array_equal(
        attacks.flip_labels(jnp.arange(10), num_classes=10), range(9, -1, -1)
    )


@pytest.mark.parametrize(("n", "b"), [(20, 4), (50, 10), (25, 11)])
def test_alie_factor_is_scipys_quantile(n, b):
    s = n // 2 + 1 - b
    expected = scipy.stats.norm.ppf((n - b - s) / (n - b))
    np.testing.assert_allclose(attacks.alie_factor(n, b), expected, rtol=1e-12)


KNOWN = {
    (20, 4, 0.1): 0.0820, (25, 5, 0.1): 0.0743, (50, 10, 0.1): 0.0399,
    (100, 20, 0.1): 0.0110, (20, 4, 0.5): 0.0013,
}  # fmt: skip


@pytest.mark.parametrize("case", KNOWN)
def test_majorities_by_scipy_and_by_draws(case):
    n, b, p = case
    found = float(theory.byzantine_majority_probability(n, b, p))
    assert found == pytest.approx(KNOWN[case], abs=1e-4)
    expected = sum(
        scipy.stats.binom.pmf(k, b, p) * scipy.stats.binom.cdf(k - 1, n - b, p)
        for k in range(b + 1)
    )
    assert found == pytest.approx(expected, rel=1e-12)
    ties = theory.byzantine_majority_probability(n, b, p, strict=False) - found
    equal = sum(scipy.stats.binom.pmf(k, b, p) * scipy.stats.binom.pmf(k, n - b, p)
                for k in range(b + 1))  # fmt: skip
    assert float(ties) == pytest.approx(equal, rel=1e-12)


def test_rounds_until_a_majority():
    p = float(theory.byzantine_majority_probability(20, 4, 0.1))
    rounds = int(theory.rounds_until_majority(20, 4, 0.1, probability=0.9))
    assert 1 - (1 - p) ** rounds >= 0.9 > 1 - (1 - p) ** (rounds - 1)
    assert theory.rounds_until_majority(20, 0, 0.1) == jnp.inf


def test_empirical_robustness_is_a_loop_over_sets():
    output = VECTORS.mean(axis=0)
    worst = 0.0
    for chosen in itertools.combinations(range(9), 7):
        inside = VECTORS[list(chosen)]
        spread = ((inside - inside.mean(axis=0)) ** 2).sum() / 7
        worst = max(worst, ((output - inside.mean(axis=0)) ** 2).sum() / spread)
    found = theory.empirical_robustness(jnp.asarray(VECTORS), jnp.asarray(output), num_byzantine=2)
    assert float(found) == pytest.approx(worst, rel=1e-12)
    same = jnp.ones((4, 2))
    assert theory.empirical_robustness(same, same[0], num_byzantine=1) == 0
    assert theory.empirical_robustness(same, 2 * same[0], num_byzantine=1) == jnp.inf


def test_coefficients():
    sizes = {"num_clients": 10, "num_byzantine": 2}  # r = 4 / 3
    found = {r: theory.robustness_coefficient(r, **sizes) for r in
             ("coordinate_median", "geometric_median", "krum", "trimmed_mean")}  # fmt: skip
    assert found == pytest.approx(
        {
            "coordinate_median": 64 / 9,
            "geometric_median": 64 / 9,
            "krum": 8.0,
            "trimmed_mean": 8 / 3,
        }
    )
    assert theory.robustness_coefficient("krum", mixed=True, **sizes) == pytest.approx(18.0)


@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (2, 3), (20, 7), (33, 5000)])
def test_columns_are_sorted_as_by_numpy(rows, columns):
    values = np.random.default_rng(rows).integers(0, 9, (rows, columns)).astype(float)
    values[0, :2] = [np.inf, np.nan]
    found = np.asarray(jax.jit(sort_columns)(values))
    values[0, 1] = np.inf
    np.testing.assert_array_equal(found, np.sort(values, axis=0))

"""Limits of adaptation against fifty digits of mpmath, enumerations, SciPy and known numbers."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from mpmath import mp, mpf

from jaxlab.core import run
from jaxlab.theory import multitask_em as em
from jaxlab.theory import multitask_laws as laws
from jaxlab.theory import multitask_learners as learners
from jaxlab.theory import multitask_limits as limits

mp.dps = 50


def exact_pmf(n, eps, beta, sign=1):
    """With fifty digits, in the order of ``count_cells``."""
    p, m = mpf(eps) ** mpf(beta), mpf(eps) ** (1 - mpf(beta))
    found = []
    for i, j in laws.count_cells(n).tolist():
        ways = mp.binomial(n, i) * mp.binomial(n - i, j)
        right, wrong = p * (1 + sign * m) / 2, p * (1 - sign * m) / 2
        found.append(ways * right**i * wrong**j * (1 - p) ** (n - i - j))
    return found


def exact_mixture(n, family, sign=1):
    share = mpf(float(family.num_good)) / mpf(float(family.num_tasks))
    good, bad = (
        exact_pmf(n, float(eps), float(family.beta), sign)
        for eps in (family.eps_good, family.eps_bad)
    )
    return [share * g + (1 - share) * b for g, b in zip(good, bad, strict=True)]


def exact_hellinger(n, family):
    both = zip(exact_mixture(n, family), exact_mixture(n, family, -1), strict=True)
    return sum((mp.sqrt(p) - mp.sqrt(q)) ** 2 for p, q in both) / 2


def made(*numbers):
    return limits.TaskFamily(*(jnp.asarray(x, dtype=float) for x in numbers))


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("eps", [0.3, 1e-3, 1e-24])
def test_laws_have_all_their_digits(n, eps):
    plus, excess = laws.task_pmf(n, *laws.task_probabilities(eps, 0.3))
    exact, mirrored = exact_pmf(n, eps, 0.3), exact_pmf(n, eps, 0.3, -1)
    np.testing.assert_allclose(plus, [float(x) for x in exact], rtol=1e-13)
    gap = [float(p - q) for p, q in zip(exact, mirrored, strict=True)]
    np.testing.assert_allclose(excess, gap, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("n", "num_tasks"), [(1, 1e7), (2, 1e14), (3, 1e14), (4, 1e14), (2, 1e32)])
def test_bounds_have_all_their_digits(n, num_tasks):
    family = limits.constant_gap(n, num_tasks)
    found = limits.adaptive_error_bounds(n, family)
    hellinger = exact_hellinger(n, family)
    np.testing.assert_allclose(found.hellinger, float(hellinger), rtol=1e-11)
    affinity = mp.exp(mpf(num_tasks) * mp.log(1 - hellinger))
    for name, value in (
        ("le_cam", affinity**2 / 4),
        ("lower", (1 - mp.sqrt(1 - affinity**2)) / 2),
        ("upper", affinity / 2),
    ):
        np.testing.assert_allclose(getattr(found, name), float(value), rtol=1e-9)


def test_divergences_are_sums():
    p, q = np.array([0.5, 0.2, 0.3, 0.0]), np.array([0.1, 0.6, 0.3, 0.0])
    law, excess = jnp.asarray(p), jnp.asarray(p - q)
    np.testing.assert_allclose(
        laws.hellinger_squared(law, excess), ((np.sqrt(p) - np.sqrt(q)) ** 2).sum() / 2, rtol=1e-13
    )
    np.testing.assert_allclose(
        laws.kl_divergence(law, excess), scipy.stats.entropy(p, q), rtol=1e-13
    )
    np.testing.assert_allclose(
        laws.chi2_divergence(law, excess), ((p - q)[:3] ** 2 / q[:3]).sum(), rtol=1e-13
    )


@pytest.mark.parametrize(("n", "num_tasks", "expected"), [(1, 1e7, 0.2218), (2, 1e14, 0.2302)])
def test_a_constant_gap_is_hard_below_its_threshold(n, num_tasks, expected):
    found = limits.adaptive_error_bounds(n, limits.constant_gap(n, num_tasks))
    assert abs(float(found.le_cam) - expected) < 1e-4


@pytest.mark.parametrize(("n", "most"), [(3, 1e-3), (4, 1.01e-7)])
def test_a_constant_gap_is_easy_from_its_threshold_on(n, most):
    tasks = jnp.logspace(7, 14, 29)
    bounds = jax.jit(
        jax.vmap(lambda num: limits.adaptive_error_bounds(n, limits.constant_gap(n, num)).le_cam)
    )
    assert float(bounds(tasks).max()) < most


NOISY = ((1, 8.25, 0.1078), (2, 8.75, 0.1132), (4, 9.5, 0.1100), (6, 10.0, 0.1057))


@pytest.mark.parametrize(("n", "log_tasks", "expected"), NOISY)
def test_a_noisy_gap_is_hard_for_every_number_of_samples(n, log_tasks, expected):
    family = limits.noisy_gap(n, 10**log_tasks)
    assert abs(float(limits.adaptive_error_bounds(n, family).le_cam) - expected) < 1e-4
    assert abs(float(limits.oracle_error(n, family)) - 2.66e-4) < 1e-6
    needed = float(limits.smallest_num_tasks(n))
    assert 10 ** (log_tasks - 0.25) < needed < 10**log_tasks


def test_out_of_reach_is_infinite():
    assert float(limits.smallest_num_tasks(2, error=0.249999)) == math.inf


@pytest.mark.parametrize(
    ("n", "expected"), [(1, 0.231), (2, 0.212), (4, 0.176), (8, 0.116), (16, 0.0473), (32, 0.0084)]
)
def test_more_samples_help_a_fixed_family(n, expected):
    found = limits.adaptive_error_bounds(n, made(0.5, 0.1, 0.005, 3.0, 100.0))
    assert abs(float(found.le_cam) - expected) < 6e-4


def bayes_error(n, family):
    """Over all sequences of tasks."""
    plus, minus = (np.array([float(x) for x in exact_mixture(n, family, sign)]) for sign in (1, -1))
    count = int(family.num_tasks)
    first, second = (
        np.array([math.prod(row) for row in itertools.product(law, repeat=count)])
        for law in (plus, minus)
    )
    return np.minimum(first, second).sum() / 2


@pytest.mark.parametrize(("n", "tasks"), [(1, 7), (2, 4), (3, 3)])
def test_bounds_enclose_the_error_of_the_bayes_rule(n, tasks):
    family = made(0.4, 0.5, 0.05, 1.2, tasks)
    found = limits.adaptive_error_bounds(n, family)
    exact = bayes_error(n, family)
    assert float(found.le_cam) <= float(found.lower) <= exact <= float(found.upper)
    # The likelihood ratio is the Bayes rule: enumerated over histograms by sequences.
    weights = np.asarray(learners.likelihood_weights(n, family))
    plus, minus = (np.array([float(x) for x in exact_mixture(n, family, sign)]) for sign in (1, -1))
    wrong = 0.0
    for row in itertools.product(range(len(plus)), repeat=tasks):
        votes = weights[list(row)].sum()
        decided = 0.0 if abs(votes) < 1e-12 else np.sign(votes)
        wrong += (1 - decided) / 4 * plus[list(row)].prod()
        wrong += (1 + decided) / 4 * minus[list(row)].prod()
    np.testing.assert_allclose(wrong, exact, rtol=1e-9)


@pytest.mark.parametrize("num", [1, 4, 7])
def test_majorities_are_counted(num):
    plus, minus = 0.35, 0.25
    law = {1: plus, -1: minus, 0: 1 - plus - minus}
    expected = 0.0
    for labels in itertools.product(law, repeat=num):
        weight = math.prod(law[label] for label in labels)
        expected += weight * (0.5 if sum(labels) == 0 else float(sum(labels) < 0))
    np.testing.assert_allclose(laws.majority_error(num, plus, minus), expected, rtol=1e-12)
    assert float(laws.majority_error(num, 0.0, 0.0)) == 0.5


def test_normal_approximations_are_near_exact_majorities():
    family = limits.noisy_gap(3, 4000.0, num_good=400.0, information=4.0)
    p, m = laws.task_probabilities(family.eps_good, family.beta)
    exact = laws.majority_error(1200, p * (1 + m) / 2, p * (1 - m) / 2)
    np.testing.assert_allclose(limits.oracle_error(3, family), exact, rtol=0.05)


def test_simulated_votes_err_as_often_as_they_should():
    family = made(0.5, 0.3, 0.02, 20.0, 40.0)
    p, m = laws.task_probabilities(family.eps_good, family.beta)
    b, w = laws.task_probabilities(family.eps_bad, family.beta)
    # One sample a task: the pooled vote is a majority over the mixture.
    plus, minus = ((p * (1 + s * m) + b * (1 + s * w)) / 4 for s in (1, -1))
    num = 20_000
    weights = learners.pooled_weights(1)
    errors = jax.jit(lambda key: learners.vote_error(key, 1, family, weights, num=num))(
        jax.random.key(0)
    )
    exact = float(laws.majority_error(40, plus, minus))
    assert abs(float(errors.mean()) - exact) < 4 * math.sqrt(exact / num)


def test_histograms_count_tasks():
    drawn = np.random.default_rng(0).multinomial(3, [0.2, 0.3, 0.5], size=50)[:, :2]
    seen = learners.histogram(jnp.asarray(drawn), n=3)
    rows = [tuple(row) for row in drawn.tolist()]
    assert seen.tolist() == [rows.count(tuple(c)) for c in laws.count_cells(3).tolist()]
    assert float(learners.vote(seen, learners.pooled_weights(3))) == np.sign(
        (drawn[:, 0] - drawn[:, 1]).sum()
    )
    strong = drawn[drawn.sum(axis=1) >= 2]
    assert float(seen @ learners.k_hit_weights(3, 2)) == (strong[:, 0] - strong[:, 1]).sum()


def test_expectation_maximisation_is_a_loop():
    plus, minus = np.array([7, 1, 0, 2, 6]), np.array([1, 1, 2, 0, 0])
    weight, n, c = np.array([1.0, 4.0, 3.0, 2.0, 2.0]), 9, 0.7
    problem = em.TaskCounts(*(jnp.asarray(x) for x in (plus, minus, np.full(5, n), weight)))
    found = run(em.task_type_em(), problem, em.em_hyper(c), jax.random.key(0), num_steps=3).state
    hits = plus + minus
    mean = (weight @ hits + c) / (weight.sum() * n + 2 * c)
    odds = mean / (1 - mean) * np.array([2.0, 0.5])
    share, rate = 0.5, odds / (1 + odds)
    right = np.full(2, (weight @ plus + c) / (weight @ hits + 2 * c))
    for _ in range(3):
        joint = np.array([share, 1 - share]) * np.stack(
            [
                scipy.stats.binom.pmf(hits, n, rate[j])
                * scipy.stats.binom.pmf(plus, hits, right[j])
                for j in range(2)
            ],
            axis=1,
        )
        resp = weight[:, None] * joint / joint.sum(axis=1, keepdims=True)
        share = (resp[:, 0].sum() + c) / (weight.sum() + 2 * c)
        seen = hits @ resp
        rate, right = (
            (seen + c) / (n * resp.sum(axis=0) + 2 * c),
            (plus @ resp + c) / (seen + 2 * c),
        )
    np.testing.assert_allclose(found.share, share, rtol=1e-12)
    np.testing.assert_allclose(found.rate, rate, rtol=1e-12)
    np.testing.assert_allclose(found.right, right, rtol=1e-12)


def test_ranks_pool_while_it_pays():
    exponents, samples = np.array([1.0, 1.2, 1.5, 6.0]), np.array([10.0, 20.0, 5.0, 100.0])
    rates = []
    for t in range(1, 5):
        total = samples[:t].sum()
        mean = (samples[:t] * exponents[:t]).sum() / total
        rates.append(total ** (-1 / (1.5 * mean)))
    found = learners.minimax_rate(jnp.asarray(exponents), jnp.asarray(samples), 0.5)
    np.testing.assert_allclose(found, rates, rtol=1e-13)
    best = learners.rank_based_aggregation(jnp.asarray(exponents), jnp.asarray(samples), 0.5)
    assert int(best) == np.argmin(rates) + 1


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: laws.task_probabilities(0.0, 0.5), r"eps must be in \(0, 1\], got 0.0"),
        (lambda: laws.task_probabilities(0.5, 1.0), r"beta must be in \(0, 1\), got 1.0"),
        (lambda: laws.count_cells(0), "n must be at least 1, got 0"),
        (
            lambda: limits.adaptive_error_bounds(1, made(0.5, 0.1, 2.0, 3.0, 9.0)),
            r"family.eps_bad must be in \(0, 1\), got 2.0",
        ),
        (
            lambda: limits.noisy_gap(1, 10.0, num_good=20.0),
            "family.num_tasks must be at least num_good",
        ),
        (
            lambda: limits.noisy_gap(1, 10.0, num_good=5.0),
            r"family.eps_good must be in \(0, 1\)",
        ),
        (lambda: limits.smallest_num_tasks(1, error=0.3), r"error must be in \(0, 1/4\)"),
        (lambda: laws.majority_error(3, 0.7, 0.7), r"plus \+ minus must be at most 1"),
        (lambda: laws.majority_error(3, -0.1, 0.7), "plus must be non-negative"),
        (lambda: learners.k_hit_weights(2, 0), "least must be at least 1, got 0"),
        (
            lambda: learners.histogram(jnp.array([[2, 2]]), n=3),
            "counts must be non-negative with at most 3 a task",
        ),
        (
            lambda: learners.minimax_rate(jnp.array([2.0, 1.0]), jnp.ones(2), 0.5),
            "exponents must be in increasing order",
        ),
        (lambda: em.em_hyper(0.0), "pseudo must be positive, got 0.0"),
        (
            lambda: em.task_type_em().init(
                em.TaskCounts(*jnp.array([[2], [2], [3]]), jnp.ones(1)),
                em.em_hyper(),
                jax.random.key(0),
            ),
            "samples - plus - minus must be non-negative",
        ),
    ],
)
def test_bad_calls_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_single_precision_is_refused():
    family = limits.TaskFamily(*(jnp.float32(x) for x in (0.5, 0.1, 0.005, 3.0, 100.0)))
    with pytest.raises(TypeError, match=r"family.beta must be float64"):
        limits.adaptive_error_bounds(1, family)

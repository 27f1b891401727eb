"""DeMoA against loops in NumPy, closed forms and draws."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core import run
from jaxlab.core.iterate import step_key
from jaxlab.optim import byzantine_attacks as attacks
from jaxlab.optim import demoa as dm
from jaxlab.optim.byzantine_aggregators import centered_clipping, coordinate_median, mean
from jaxlab.optim.byzantine_selection import bucketing
from jaxlab.optim.byzantine_theory import byzantine_majority_probability
from jaxlab.problems.consensus import full_gradient
from jaxlab.problems.federation import make_federation
from tests.oracles.numpy_demoa import median_demoa

KEY = jax.random.key(4)
CLIENTS, DIM, ROUNDS = 7, 3, 40
LIARS = np.arange(CLIENTS) < 2
TARGETS = np.random.default_rng(1).standard_normal((CLIENTS, DIM))
CURVATURES = 1 + np.random.default_rng(2).random((CLIENTS, DIM))
MEDIAN = dm.without_history(coordinate_median)


def loss(x, data):
    curvature, target = data
    return 0.5 * jnp.sum(curvature * (x - target) ** 2)


PROBLEM = make_federation(
    full_gradient(loss), (CURVATURES, TARGETS), jnp.ones(DIM), jnp.asarray(LIARS)
)


def flip(vectors, byzantine, key):
    return attacks.sign_flip(vectors, byzantine, scale=4.0)


def path_of(method, hyper, rounds=ROUNDS, problem=PROBLEM):
    return run(method, problem, hyper, KEY, num_steps=rounds, trace_fn=lambda s, i: (s, i)).trace


@functools.cache
def flipped(over="cache"):
    """The path of medians under flipped signs, compiled once for all tests."""
    method = dm.demoa(MEDIAN, attack=flip, over=over)
    return jax.jit(lambda hyper, problem: path_of(method, hyper, problem=problem))


def samples_of(participation, rounds=ROUNDS):
    """Who the runs above hear, from the keys that the runner folds."""

    def sample(t):
        key = jax.random.split(step_key(KEY, t), 4)[0]
        return dm.sample_clients(key, participation, num_clients=CLIENTS)

    return np.asarray(jax.vmap(sample)(jnp.arange(rounds)))


@pytest.mark.parametrize("over", ["cache", "sampled"])
def test_the_path_is_that_of_a_loop(over):
    hyper = dm.demoa_hyper(0.3, momentum=0.4, step_size=0.2)
    states, infos = flipped(over)(hyper, PROBLEM)
    samples = samples_of(0.3)
    expected = median_demoa(
        lambda i, x: CURVATURES[i] * (x - TARGETS[i]), np.ones(DIM), LIARS, samples,
        momentum=0.4, step_size=0.2, scale=4.0, over=over,
    )  # fmt: skip
    np.testing.assert_allclose(states.params, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(infos.num_sampled, samples.sum(axis=1))
    heard = np.maximum(samples.sum(axis=1), 1)
    shares = samples[:, LIARS].sum(axis=1) / heard
    np.testing.assert_allclose(infos.byzantine_sampled, shares, rtol=1e-15)
    whole = np.full(ROUNDS, 2 / 7) if over == "cache" else shares
    np.testing.assert_allclose(infos.byzantine_aggregated, whole, rtol=1e-15)
    assert samples.any(axis=1).min() == 0, "a round that hears nobody is part of the test"


def test_ages_errors_and_spreads_are_those_of_the_state():
    hyper = dm.demoa_hyper(0.3, momentum=0.4, step_size=0.2)
    states, infos = flipped()(hyper, PROBLEM)
    samples, ages = samples_of(0.3), np.zeros(CLIENTS)
    for t in range(ROUNDS):
        ages = np.where(samples[t], 0, ages + 1)
        np.testing.assert_array_equal(states.ages[t], ages)
        honest = np.asarray(states.cache[t])[~LIARS]
        center = honest.mean(axis=0)
        error = ((np.asarray(states.direction[t]) - center) ** 2).sum()
        spread = ((honest - center) ** 2).sum(axis=1).mean()
        np.testing.assert_allclose(infos.aggregation_error[t], error, rtol=1e-12)
        np.testing.assert_allclose(infos.honest_variance[t], spread, rtol=1e-12)
        np.testing.assert_allclose(infos.mean_age[t], ages.mean(), rtol=1e-15)


def test_full_participation_is_byzantine_sgd_with_momentum():
    hyper = dm.demoa_hyper(1.0, momentum=0.4, step_size=0.2)
    states, _ = flipped()(hyper, PROBLEM)
    naive, _ = flipped("sampled")(hyper, PROBLEM)
    np.testing.assert_array_equal(states.params, naive.params)


def test_liars_keep_their_lies_while_they_are_not_heard():
    hyper = dm.demoa_hyper(0.3, momentum=0.4, step_size=0.2)
    honest_only = dm.demoa(MEDIAN, attack=lambda v, b, k: attacks.far_away(v, b, scale=9.0))
    states, _ = path_of(honest_only, hyper)
    heard = np.cumsum(samples_of(0.3)[:, :2], axis=0) > 0
    np.testing.assert_array_equal(states.cache[:, :2, 0], np.where(heard, 9.0, 0.0))
    rewriting, _ = path_of(dm.demoa(MEDIAN, attack=flip, attack_unsampled=True), hyper)
    for t in range(ROUNDS):
        honest = np.asarray(rewriting.cache[t])[2:].mean(axis=0)
        np.testing.assert_allclose(rewriting.cache[t, 0], -4 * honest, rtol=1e-12, atol=1e-15)


def test_a_full_first_round_fills_the_cache():
    method = dm.demoa(MEDIAN, attack=flip, start="full_round")
    state = method.init(PROBLEM, dm.demoa_hyper(0.3, step_size=0.2), KEY)
    honest = (CURVATURES * (1 - TARGETS))[~LIARS]
    np.testing.assert_allclose(state.cache[2:], honest, rtol=1e-12)
    np.testing.assert_allclose(state.cache[:2], [-4 * honest.mean(axis=0)] * 2, rtol=1e-12)


def test_clipping_is_centred_at_the_last_direction():
    def clipping(vectors, participants, previous, key):
        return centered_clipping(vectors, previous, participants, radius=0.5)

    hyper = dm.demoa_hyper(0.3, momentum=0.4, step_size=0.2)
    states, _ = path_of(dm.demoa(clipping, attack=flip), hyper, rounds=5)
    previous = np.zeros(DIM)
    for t in range(5):
        expected = centered_clipping(states.cache[t], jnp.asarray(previous), radius=0.5)
        np.testing.assert_allclose(states.direction[t], expected, rtol=1e-12, atol=1e-15)
        previous = np.asarray(states.direction[t])


def test_an_aggregate_may_draw():
    def dealt(vectors, participants, previous, key):
        return coordinate_median(bucketing(key, vectors, size=2))

    hyper = dm.demoa_hyper(1.0, momentum=1.0, step_size=0.1)
    states, _ = path_of(dm.demoa(dealt), hyper, rounds=3)
    key = jax.random.split(step_key(KEY, 1), 4)[3]
    expected = dealt(states.cache[1], None, None, key)
    np.testing.assert_allclose(states.direction[1], expected, rtol=1e-12)


def test_renumbered_clients_give_the_same_path():
    order = np.array([3, 5, 0, 2, 6, 1, 4])
    moved = make_federation(
        full_gradient(loss), (CURVATURES[order], TARGETS[order]), jnp.ones(DIM),
        jnp.asarray(LIARS[order]),
    )  # fmt: skip
    hyper = dm.demoa_hyper(1.0, momentum=0.4, step_size=0.2)
    one, _ = flipped()(hyper, PROBLEM)
    other, _ = flipped()(hyper, moved)
    np.testing.assert_allclose(other.params, one.params, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(other.cache, one.cache[:, order], rtol=1e-12, atol=1e-13)


def test_trees_of_parameters_are_long_vectors():
    def tree_loss(params, data):
        return loss(jnp.concatenate([params["a"], params["b"][0]]), data)

    start = {"a": jnp.ones(1), "b": jnp.ones((1, 2))}
    data, liars = (CURVATURES, TARGETS), jnp.asarray(LIARS)
    problem = make_federation(full_gradient(tree_loss), data, start, liars)
    hyper = dm.demoa_hyper(0.3, momentum=0.4, step_size=0.2)
    tree, _ = flipped()(hyper, problem)
    flat, _ = flipped()(hyper, PROBLEM)
    np.testing.assert_allclose(tree.params["a"], flat.params[:, :1], rtol=1e-13)
    np.testing.assert_allclose(tree.params["b"][:, 0], flat.params[:, 1:], rtol=1e-13)


def test_the_share_of_liars_is_drawn_by_coins():
    """Monte Carlo over 2e5 rounds, at four standard errors."""
    rounds = 200_000

    def majority(key):
        sampled = dm.sample_clients(key, 0.1, num_clients=20)
        return sampled[:4].sum() > sampled[4:].sum(), sampled.sum()

    found, counts = jax.jit(jax.vmap(majority))(jax.random.split(KEY, rounds))
    p = float(byzantine_majority_probability(20, 4, 0.1))
    assert abs(float(found.mean()) - p) < 4 * (p * (1 - p) / rounds) ** 0.5
    # A fixed number of clients would have no variance, coins have n p (1 - p).
    assert float(counts.var()) == pytest.approx(1.8, rel=4 * (2 / rounds) ** 0.5 * 1.2)


def test_fixed_samples_are_uniform():
    rounds = 20_000
    draw = jax.vmap(lambda key: dm.sample_clients_fixed(key, num_clients=5, num_sampled=2))
    sampled = np.asarray(draw(jax.random.split(KEY, rounds)))
    assert (sampled.sum(axis=1) == 2).all()
    pairs = sampled.astype(int).T @ sampled / rounds
    expected = np.where(np.eye(5, dtype=bool), 0.4, 0.1)
    assert np.abs(pairs - expected).max() < 5 * (0.24 / rounds) ** 0.5


def test_momenta_have_the_predicted_law():
    """Bias, variance and age of 1e5 clients at a fixed point, at four standard errors."""
    clients, rounds, p, alpha, first = 100_000, 12, 0.3, 0.4, 2.0

    def one_round(carry, key):
        momenta, ages = carry
        key_sample, key_noise = jax.random.split(key)
        sampled = dm.sample_clients(key_sample, p, num_clients=clients)
        noise = jax.random.normal(key_noise, (clients, 1))
        return (
            dm.refresh_momentum(momenta, noise, sampled, alpha),
            dm.increase_ages(ages, sampled),
        ), None

    begin = jnp.full((clients, 1), first), jnp.zeros(clients, dtype=jnp.int32)
    (momenta, ages), _ = jax.jit(lambda keys: jax.lax.scan(one_round, begin, keys))(
        jax.random.split(KEY, rounds)
    )
    momenta = np.asarray(momenta[:, 0])
    error = momenta.mean() - first * dm.momentum_bias(p, alpha, rounds)
    assert abs(error) < 4 * momenta.std() / clients**0.5
    square = dm.momentum_variance(p, alpha, rounds, noise=1.0, first=first**2)
    assert abs((momenta**2).mean() - square) < 4 * (momenta**2).std() / clients**0.5
    pmf = np.asarray(dm.staleness_pmf(jnp.arange(rounds + 1), p, rounds))
    assert pmf.sum() == pytest.approx(1.0, rel=1e-12)
    found = np.bincount(np.asarray(ages), minlength=rounds + 1) / clients
    assert (np.abs(found - pmf) < 4 * np.sqrt(pmf / clients)).all()


def test_liars_without_an_attack_follow_the_protocol():
    hyper = dm.demoa_hyper(1.0, momentum=1.0, step_size=0.2)
    states, infos = path_of(dm.demoa(dm.without_history(mean)), hyper, rounds=1)
    np.testing.assert_allclose(states.direction[0], (CURVATURES * (1 - TARGETS)).mean(axis=0))
    np.testing.assert_allclose(infos.byzantine_aggregated, 2 / 7)

"""Theory, i-SIR, waiting times and the NumPyro adapter against SciPy, loops and closed forms."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.linalg
import scipy.special
import scipy.stats

from jaxlab.core import run
from jaxlab.inference import ais_numpyro, ais_theory, isir, waiting_times
from jaxlab.inference.ais import ais_hyper, delayed_ais
from jaxlab.inference.target import heavy_tailed, make_target

KEY = jax.random.key(4)
GENERATOR = np.random.default_rng(8)
PI, Q, G = GENERATOR.dirichlet(np.ones(5), size=3)
K = GENERATOR.dirichlet(np.ones(5), size=5)
LAWS = tuple(jnp.asarray(law) for law in (PI, Q, G, K))


@pytest.mark.parametrize("lag", range(6))
@pytest.mark.parametrize("refresh", [0.1, 0.5, 1.2])
def test_lag_radius_is_the_polynomials(lag, refresh):
    for theta in (0.0, 0.6, 1.0):
        polynomial = np.zeros(lag + 2)
        polynomial[0] = 1
        polynomial[1] -= 1 - refresh + refresh * theta
        polynomial[-1] += refresh * theta
        expected = np.abs(np.roots(polynomial)).max()
        found = ais_theory.lag_spectral_radius(refresh, theta, lag)
        assert float(found) == pytest.approx(expected, abs=1e-7)


def test_lag_limit_is_where_the_radius_is_one_and_beyond_the_window():
    for lag in range(12):
        limit = ais_theory.lag_stability_limit(lag)
        assert float(ais_theory.lag_spectral_radius(limit, 1.0, lag)) == pytest.approx(1, abs=1e-9)
        assert limit > 1 / (lag + 1)


def recursion(lag, refresh, kernel, defensive, steps):
    history = np.tile(G, (lag + 1, 1))
    errors = []
    limit = defensive * G + (1 - defensive) * PI @ kernel
    for _ in range(steps):
        mu = history[-1] * PI / history[0]
        mu = mu / mu.sum()
        q = defensive * G + (1 - defensive) * mu @ kernel
        history = np.concatenate([history[1:], [(1 - refresh) * history[-1] + refresh * q]])
        errors.append(np.abs(history[-1] / limit - 1).max())
    return history, np.array(errors)


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_mean_field_is_the_loop(lag):
    def step(history, _):
        history, q, mu = ais_theory.mean_field_step(history, LAWS[0], LAWS[2], LAWS[3], 0.2, 0.1)
        return history, (q, mu)

    start = jnp.tile(jnp.asarray(G), (lag + 1, 1))
    history, (_, mu) = jax.jit(lambda h: jax.lax.scan(step, h, length=150))(start)
    expected, errors = recursion(lag, 0.2, K, 0.1, 150)
    np.testing.assert_allclose(history, expected, rtol=1e-12)
    assert errors[-1] < 1e-10
    np.testing.assert_allclose(mu[-1], PI, atol=1e-9)
    fixed = ais_theory.mean_field_fixed_point(LAWS[0], LAWS[2], LAWS[3], 0.1)
    np.testing.assert_allclose(history[-1], fixed, atol=1e-9)


def test_a_long_lag_diverges_in_the_nonlinear_recursion_too():
    """A refresh of 0.5 is beyond the limit 0.347 of lag 4, and below that of lag 2, 0.618."""
    _, unstable = recursion(4, 0.5, np.eye(5), 0.01, 400)
    _, stable = recursion(2, 0.5, np.eye(5), 0.01, 400)
    assert unstable[-50:].max() > 0.3
    assert stable[-1] < 1e-2


def test_variances_by_enumeration():
    proposals, h = GENERATOR.dirichlet(np.ones(3), size=3), np.array([0.3, 2.0, 1.1])
    for name, divide in [
        ("separate_variance", lambda r, x: proposals[r, x]),
        ("mixture_variance", lambda r, x: proposals[:, x].mean()),
    ]:
        first = second = 0.0
        for draw in itertools.product(range(3), repeat=3):
            weight = math.prod(proposals[r, x] for r, x in enumerate(draw))
            estimate = np.mean([h[x] / divide(r, x) for r, x in enumerate(draw)])
            first, second = first + weight * estimate, second + weight * estimate**2
        assert first == pytest.approx(h.sum())
        found = getattr(ais_theory, name)(jnp.asarray(h), jnp.asarray(proposals))
        assert float(found) == pytest.approx(second - first**2, rel=1e-9)


def test_second_moment_ratio_is_the_limit_of_the_ess():
    w = 7 * PI / Q
    found = ais_theory.second_moment_ratio(jnp.asarray(7 * PI), jnp.asarray(Q))
    assert float(found) == pytest.approx((Q @ w**2) / (Q @ w) ** 2)
    assert ais_theory.self_normalized_error_bound(2.0, 100) == 0.08


def test_isir_matrix_by_loops():
    pi, q, num = PI[:3] / PI[:3].sum(), Q[:3] / Q[:3].sum(), 4
    expected = np.zeros((3, 3))
    for x in range(3):
        for fresh in itertools.product(range(3), repeat=num - 1):
            candidates = [x, *fresh]
            w = (pi / q)[candidates]
            for y, share in zip(candidates, w / w.sum(), strict=True):
                expected[x, y] += math.prod(q[list(fresh)]) * share
    found = isir.isir_transition_matrix(jnp.asarray(pi), jnp.asarray(q), num)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    distances = [np.abs(a - b).sum() / 2 for a in expected for b in expected]
    assert float(isir.dobrushin_coefficient(found)) == pytest.approx(max(distances))
    assert isir.isir_contraction(2.5, 4) == pytest.approx(1 - 3 / 7)


def test_isir_chains_have_the_target_and_the_matrix():
    """On a discrete law, written as a density on the line: one move from one state."""
    atoms = dist.Categorical(jnp.asarray(Q))

    class Atoms(dist.Distribution):
        support = dist.constraints.real_vector

        def __init__(self):
            super().__init__((), (1,))

        def sample(self, key, sample_shape=()):
            return atoms.sample(key, sample_shape)[..., None].astype(float)

        def log_prob(self, value):
            return atoms.log_prob(value[..., 0].astype(int))

    target = make_target(lambda x: jnp.log(jnp.asarray(PI))[x[0].astype(int)] + 5.0, Atoms())
    method = isir.isir(num_chains=20_000, num_candidates=4)
    state = isir.ISIRState(jnp.full((20_000, 1), 2.0), jnp.full(20_000, np.log(PI[2] / Q[2]) + 5.0))
    after, info = jax.jit(method.step)(target, (), state, KEY)
    matrix = isir.isir_transition_matrix(jnp.asarray(PI), jnp.asarray(Q), 4)
    counts = np.bincount(np.asarray(after.points[:, 0]).astype(int), minlength=5)
    assert scipy.stats.chisquare(counts, 20_000 * np.asarray(matrix[2])).pvalue > 1e-4
    assert 0 < float(info.moved) < 1
    weights = np.log(PI / Q)[np.asarray(after.points[:, 0]).astype(int)] + 5
    np.testing.assert_allclose(after.log_weights, weights, rtol=1e-9)


def test_waiting_times_on_a_finite_space():
    generator = np.asarray(waiting_times.jump_generator(jnp.asarray(PI), jnp.asarray(Q)))
    np.testing.assert_allclose(generator.sum(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(PI @ generator, 0, atol=1e-14)
    expected = G @ scipy.linalg.expm(0.7 * generator)
    law = waiting_times.law_at(jnp.asarray(G), jnp.asarray(generator), jnp.asarray(PI), 0.7)
    np.testing.assert_allclose(law, expected, rtol=1e-10)
    gap = waiting_times.spectral_gap(jnp.asarray(generator), jnp.asarray(PI))
    rates = np.sort(-np.linalg.eigvals(generator).real)
    assert float(gap) == pytest.approx(rates[1])
    chain = np.asarray(waiting_times.independent_metropolis_matrix(*LAWS[:2]))
    np.testing.assert_allclose(PI @ chain, PI, rtol=1e-12)
    assert np.sort(np.linalg.eigvals(chain).real)[-2] == pytest.approx(1 - (Q / PI).min())
    assert waiting_times.metropolis_gap((PI / Q).max()) == pytest.approx((Q / PI).min())


def test_states_of_paths_have_the_law_of_the_process():
    """Started from the proposal, a particle's law at a time against the exponential of A."""
    target = make_target(lambda x: -jnp.sum(x**2) / 2, heavy_tailed(jnp.array([0.5]), 1.5))

    def one(key):
        path = waiting_times.waiting_time_path(key, target, num_jumps=200, log_unit=0.9)
        return *waiting_times.state_at(path, 4.0), waiting_times.path_mean(path.points, path)

    keys = jax.random.split(KEY, 4000)
    points, reached, means = jax.jit(jax.vmap(one))(keys)
    assert bool(reached.all())
    # Weights are below 2 in this unit, so that the law is exp(-4/2) close or closer by then.
    assert scipy.stats.kstest(np.asarray(points[:, 0]), scipy.stats.norm.cdf).pvalue > 1e-4
    assert abs(float(means.mean())) < 5 * float(means.std()) / math.sqrt(4000) + 0.005
    path = waiting_times.WaitingPath(jnp.arange(3.0)[:, None], jnp.zeros(3), jnp.full(3, 0.5))
    for time, place, far in [(0.0, 0, True), (0.5, 1, True), (1.4, 2, True), (2.0, 2, False)]:
        point, reached = waiting_times.state_at(path, time)
        assert (float(point[0]), bool(reached)) == (place, far)


def conjugate(counts):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.deterministic("double", 2 * rate)
    numpyro.sample("counts", dist.Poisson(rate), obs=counts)


def test_a_numpyro_model_gives_its_marginal_likelihood_and_posterior():
    counts = np.array([3, 5, 4])
    posterior = ais_numpyro.numpyro_target(conjugate, (jnp.asarray(counts),), key=KEY)
    method = delayed_ais(block_size=200)
    done = jax.jit(lambda k: run(method, posterior.target, ais_hyper(), k, num_steps=15))(KEY)
    shape, rate = 2 + counts.sum(), 1 + len(counts)
    exact = (
        scipy.special.gammaln(shape) - shape * math.log(rate)
        - scipy.special.gammaln(2) - scipy.special.gammaln(counts + 1).sum()
    )  # fmt: skip
    blocks = np.exp(np.asarray(done.trace.block_log_evidence[5:]) - exact)
    assert abs(blocks.mean() - 1) < 5 * blocks.std() / math.sqrt(len(blocks)) < 0.2
    draws = ais_numpyro.named_draws(KEY, done.state, posterior, 1000)
    assert set(draws) == {"rate", "double"}
    law = scipy.stats.gamma(shape, scale=1 / rate)
    assert float(draws["rate"].mean()) == pytest.approx(law.mean(), abs=0.1)
    assert float(draws["rate"].std()) == pytest.approx(law.std(), abs=0.1)
    np.testing.assert_allclose(draws["double"], 2 * draws["rate"])
    data = ais_numpyro.to_arviz(draws, log_evidence=-6.5)
    assert data.posterior["rate"].shape == (1, 1000)
    assert data.posterior.attrs["log_evidence"] == -6.5


def test_sites_of_the_global_law_by_name():
    located = ais_numpyro.numpyro_target(
        conjugate, (jnp.array([3]),), key=KEY, location={"rate": 1.5}, scale={"rate": 0.25}
    )
    law = located.target.proposal
    assert (float(law.loc[0]), float(law.scale_tril[0, 0])) == (1.5, 0.25)
    for name in ("location", "scale"):
        with pytest.raises(ValueError, match=rf"{name} must have sites of the shapes .*rate"):
            ais_numpyro.numpyro_target(
                conjugate, (jnp.array([3]),), key=KEY, **{name: {"other": 1.0}}
            )


def test_a_model_without_latent_sites_is_refused():
    def model():
        numpyro.sample("x", dist.Normal(0.0, 1.0), obs=jnp.ones(()))

    with pytest.raises(ValueError, match="model must have a continuous latent site"):
        ais_numpyro.numpyro_target(model, key=KEY)

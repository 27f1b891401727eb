"""Wrong input to the functions on memorization is refused by the argument's name."""

import jax
import jax.numpy as jnp
import optax
import pytest
from jax.experimental import checkify

from jaxlab.core import checked
from jaxlab.diffusion import memorization as curves
from jaxlab.diffusion import memorization_bounds as bounds
from jaxlab.diffusion import memorization_neighbours as neighbours
from jaxlab.diffusion import memorization_training as training
from jaxlab.diffusion.learned import Training
from jaxlab.diffusion.memorization_copies import memorization_ratio, nearest_rows
from jaxlab.diffusion.memorization_shells import shell_probability, shell_radii
from jaxlab.stats.energy import energy_distance

pytestmark = pytest.mark.usefixtures("without_type_checks")

KEY = jax.random.key(0)
ROWS = jnp.eye(4, 12)
SIGMAS = jnp.array([0.5, 1.0])
QUERIES = neighbours.noisy_queries(KEY, ROWS, num_noise=2)
NONE = neighbours.no_neighbours(QUERIES, SIGMAS)
SINGLE = ROWS.astype(jnp.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shell_radii(0), "dim must be at least 1, got 0"),
        (lambda: shell_radii(12, 3.5), r"c must be in \(0, dim / 4 = 3.0\], got 3.5"),
        (lambda: shell_radii(12, 0.0), r"c must be in \(0"),
        (lambda: shell_radii(12, jnp.nan), r"c must be in \(0"),
        (lambda: shell_probability(jnp.array(-1.0), 12, 1.0), "noncentrality must be non-negative"),
        (
            lambda: curves.max_posterior_weight(KEY, ROWS, SIGMAS, num_signals=5),
            "num_signals must be at most the number of rows, 4, got 5",
        ),
        (
            lambda: curves.max_posterior_weight(KEY, ROWS, jnp.array([1.0, 0.0])),
            r"sigmas must be positive and finite, got \[1.0, 0.0\]",
        ),
        (
            lambda: curves.max_posterior_weight(KEY, ROWS, jnp.array(1.0)),
            r"sigmas must be a vector of levels, got shape \(\)",
        ),
        (
            lambda: curves.max_posterior_weight(KEY, ROWS.at[0, 0].set(jnp.nan), SIGMAS),
            "data must be finite, got 1 NaN",
        ),
        (
            lambda: curves.shell_coverage(KEY, ROWS, ROWS, SIGMAS),
            r"c must be in \(0, dim / 4 = 3.0\], got 5.0",
        ),
        (
            lambda: curves.shell_coverage(KEY, ROWS[:, :11], ROWS, SIGMAS, 1.0),
            "rows must have length 11 like the queries, got 12",
        ),
        (
            lambda: curves.shell_coverage(KEY, ROWS[:0], ROWS, SIGMAS, 1.0),
            r"signals must have shape \[rows, dim\] with entries, got \(0, 12\)",
        ),
        (
            lambda: neighbours.observe_rows(NONE, QUERIES, jnp.ones(3), ROWS),
            r"seen must be of 3 levels and 8 queries, got \(2, 8\)",
        ),
        (
            lambda: curves.coverage_of(NONE, num_noise=3),
            "num_noise must divide the number of queries, 8, got 3",
        ),
        (
            lambda: curves.concentration_of(NONE, jnp.arange(3), num_noise=2),
            "own must hold 4 indices, one for each signal, got 3",
        ),
        (
            lambda: curves.danger_zone(jnp.ones(2), jnp.ones(3)),
            r"weight and share must be of one shape, got \(2,\) and \(3,\)",
        ),
        (lambda: curves.danger_zone(jnp.ones(2), 2 * jnp.ones(2)), r"share must be in \[0, 1\]"),
        (
            lambda: curves.danger_zone(jnp.ones(2), jnp.ones(2), least_share=-0.1),
            r"least_share must be in \[0, 1\], got -0.1",
        ),
        (
            lambda: curves.zone_ends(SIGMAS, jnp.ones(3, bool)),
            r"zone must have the shape of sigmas, \(2,\), got \(3,\)",
        ),
        (lambda: nearest_rows(ROWS, ROWS[:, :3]), "rows must have length 12 like the samples"),
        (lambda: nearest_rows(ROWS[:0], ROWS), "samples must have shape"),
        (lambda: memorization_ratio(ROWS, ROWS[:1]), "data must hold at least 2 rows, got 1"),
        (lambda: memorization_ratio(ROWS, ROWS, ratio=0.0), r"ratio must be in \(0, 1\], got 0.0"),
        (
            lambda: bounds.posterior_weight_bounds(ROWS[:1], SIGMAS),
            "data must hold at least 2 rows, got 1",
        ),
        (
            lambda: bounds.shell_coverage_bounds(ROWS[:, :3], ROWS, SIGMAS, 1.0),
            "held_out must have length 12 like data, got 3",
        ),
        (lambda: bounds.capacity(-jnp.ones(2), SIGMAS), "eigenvalues must be non-negative"),
        (
            lambda: bounds.capacity_level(jnp.zeros(2), 5),
            "eigenvalues must be non-negative and not all 0",
        ),
        (lambda: bounds.capacity_level(jnp.ones(2), 1), "num_rows must be at least 2, got 1"),
        (lambda: bounds.coverage_level(-1.0, 12, 1.0), "distance must be non-negative, got -1.0"),
        (lambda: training.gap_noise(0.0, 1.0, -1.0, 2.0), "low must be non-negative, got -1.0"),
        (lambda: training.gap_noise(0.0, 1.0, 2.0, 1.0), "high must be at least low = 2.0, got 1"),
        (lambda: training.gap_noise(0.0, 1.0, 1.0, 2.0, 1.5), r"keep must be in \[0, 1\], got 1.5"),
        (lambda: training.gap_noise(0.0, -1.0, 1.0, 2.0), "deviation must be non-negative"),
        (
            lambda: training.gap_training(abs, optax.sgd(1.0), batch_size=0),
            "batch_size must be at least 1, got 0",
        ),
        (lambda: energy_distance(ROWS, ROWS[:, :3]), "second must have length 12 like first"),
        (lambda: energy_distance(ROWS[:0], ROWS), "first must have shape"),
    ],
)
def test_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: curves.max_posterior_weight(0, ROWS, SIGMAS), "key must be a typed PRNG key"),
        (
            lambda: curves.max_posterior_weight(KEY, SINGLE, SIGMAS),
            r"data must be float64 \(squared distances cancel at small noise\), got float32",
        ),
        (
            lambda: curves.shell_coverage(KEY, SINGLE, ROWS, SIGMAS, 1.0),
            "signals must be float64",
        ),
        (
            lambda: curves.max_posterior_weight(KEY, ROWS, SIGMAS, num_noise=1.5),
            "num_noise must be a Python integer, got 1.5",
        ),
        (
            lambda: neighbours.observe_rows(NONE, QUERIES, SIGMAS, ROWS, chunk_size=None),
            "chunk_size must be a Python integer, got None",
        ),
        (lambda: bounds.posterior_weight_bounds(SINGLE, SIGMAS), "data must be float64"),
        (lambda: nearest_rows(ROWS, ROWS, chunk_size=2.0), "chunk_size must be a Python integer"),
        (lambda: training.gap_noise(0.0, 1.0, 0.0, 0.0)(0, (2,)), "key must be a typed PRNG key"),
        (
            lambda: training.denoising_errors(0, lambda x, s: x, ROWS, SIGMAS),
            "key must be a typed PRNG key",
        ),
    ],
)
def test_types(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_gaps_are_checked_by_the_training_too():
    method = training.gap_training(lambda p, x, noise: p * x, optax.sgd(0.1), batch_size=2)
    hyper = training.gap_hyper(0.5, gap=(2.0, 1.0))
    with pytest.raises(ValueError, match="high must be at least low"):
        method.init(Training(jnp.zeros(()), ROWS), hyper, KEY)
    with pytest.raises(ValueError, match="data_scale must be positive and finite"):
        method.init(Training(jnp.zeros(()), ROWS), training.gap_hyper(0.0), KEY)


def test_traced_values_are_checked_on_demand():
    radii = jax.jit(lambda c: shell_radii(12, c).outer)
    assert radii(1.0) > 3
    with pytest.raises(checkify.JaxRuntimeError, match="c must be in"):
        checked(radii)(4.0)

"""Wrong input to robust means, attacks and DeMoA is refused by the argument's name."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import checkify

from jaxlab.core import checked, run
from jaxlab.optim import byzantine_aggregators as rules
from jaxlab.optim import byzantine_attacks as attacks
from jaxlab.optim import byzantine_selection as selection
from jaxlab.optim import byzantine_theory as theory
from jaxlab.optim import demoa as dm
from jaxlab.problems.consensus import full_gradient
from jaxlab.problems.federation import make_federation

pytestmark = pytest.mark.usefixtures("without_type_checks")

KEY = jax.random.key(0)
V = jnp.ones((5, 2))
LIARS = jnp.arange(5) < 2
ALL = jnp.ones(5, dtype=bool)


def quadratic(x, target):
    return jnp.sum((x - target) ** 2)


GRADIENT = full_gradient(quadratic)
PROBLEM = make_federation(GRADIENT, V, jnp.zeros(2), LIARS)
HYPER = dm.demoa_hyper(0.5, step_size=0.1)


def one_round(method):
    return run(method, PROBLEM, HYPER, KEY, num_steps=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rules.mean(V[0]), r"vectors must be \[clients, dim\] .*, got shape \(2,\)"),
        (lambda: rules.mean(V, ALL[:3]), r"participants must have shape \(5,\) .*, got \(3,\)"),
        (lambda: rules.trimmed_mean(V, num_byzantine=3), r"num_byzantine must be in \[0, 5/2\), "),
        (lambda: rules.trimmed_mean(V, num_byzantine=-1), r"num_byzantine must be .*, got -1"),
        (lambda: rules.trimmed_mean(V, LIARS, num_byzantine=1), r"fewer than half of the parti"),
        (lambda: rules.geometric_median(V, smoothing=0.0), r"smoothing must be positive, got 0"),
        (lambda: rules.geometric_median(V, num_iters=0), r"num_iters must be at least 1, got 0"),
        (
            lambda: rules.centered_clipping(V, jnp.zeros(2), radius=-1.0),
            r"radius must be positive, got -1",
        ),
        (
            lambda: rules.centered_clipping(V, jnp.zeros(3), radius=1.0),
            r"center must have shape \(2,\), got \(3,\)",
        ),
        (
            lambda: rules.over_trees(rules.mean)({"a": V, "b": V[:3]}),
            r"tree\['b'\] must have a leading axis of 5 clients, got shape \(3, 2\)",
        ),
        (lambda: selection.krum(V, num_byzantine=3), r"num_byzantine must be in .*, got 3"),
        (
            lambda: selection.multi_krum(V, num_byzantine=1, num_selected=9),
            r"num_selected must be at most the number of clients 5, got 9",
        ),
        (
            lambda: selection.minimum_diameter_average(jnp.ones((40, 1)), num_byzantine=10),
            r"num_byzantine must leave at most 20000 subsets .* leaves 847660528",
        ),
        (
            lambda: selection.nearest_neighbour_mixing(V, num_byzantine=3),
            r"num_byzantine must be in .*, got 3",
        ),
        (lambda: selection.bucketing(KEY, V, size=6), r"size must be at most .* 5, got 6"),
        (lambda: selection.bucketing(KEY, V, size=0), r"size must be at least 1, got 0"),
        (lambda: attacks.sign_flip(V, LIARS[:2]), r"byzantine must have one entry per client .*"),
        (lambda: attacks.sign_flip(V, ALL), r"byzantine must be such that somebody is honest"),
        (lambda: attacks.alie_factor(4, 2), r"num_byzantine must be fewer than half .*, got 2"),
        (
            lambda: attacks.flip_labels(jnp.array([0, 3]), num_classes=3),
            r"labels must be in \[0, 3\)",
        ),
        (
            lambda: theory.robustness_coefficient("meen", num_clients=5, num_byzantine=1),  # pyright: ignore
            r"rule must be one of coordinate_median, .*, got 'meen'",
        ),
        (
            lambda: theory.robustness_coefficient("krum", num_clients=4, num_byzantine=2),
            r"num_byzantine must be fewer than half of num_clients = 4, got 2",
        ),
        (
            lambda: theory.empirical_robustness(jnp.ones((15, 1)), V[0, :1], num_byzantine=1),
            r"vectors must be of at most 14 clients, got 15",
        ),
        (
            lambda: theory.byzantine_majority_probability(5, 1, 1.5),
            r"participation must be in \[0, 1\], got 1.5",
        ),
        (
            lambda: theory.rounds_until_majority(5, 1, 0.1, probability=1.0),
            r"probability must be in \(0, 1\), got 1.0",
        ),
        (lambda: dm.demoa_hyper(0.0, step_size=0.1), r"participation must be in \(0, 1\], got 0"),
        (lambda: dm.demoa_hyper(momentum=2.0, step_size=1.0), r"momentum must be in \(0, 1\]"),
        (lambda: dm.demoa_hyper(step_size=-0.1), r"step_size must be positive, got -0.1"),
        (
            lambda: dm.sample_clients_fixed(KEY, num_clients=3, num_sampled=4),
            r"num_sampled must be at most num_clients = 3, got 4",
        ),
        (
            lambda: dm.demoa(dm.without_history(rules.mean), over="cash"),  # pyright: ignore
            r"over must be 'cache', 'sampled' or a function, got 'cash'",
        ),
        (
            lambda: dm.demoa(dm.without_history(rules.mean), start="ones"),  # pyright: ignore
            r"start must be 'zeros' or 'full_round', got 'ones'",
        ),
        (
            lambda: one_round(dm.demoa(lambda v, p, u, k: v)),
            r"aggregate must return shape \(2,\), got \(5, 2\)",
        ),
        (
            lambda: one_round(
                dm.demoa(dm.without_history(rules.mean), attack=lambda v, b, k: v[0])
            ),
            r"attack must return shape \(5, 2\), got \(2,\)",
        ),
        (
            lambda: make_federation(GRADIENT, V, jnp.zeros(2), ALL),
            r"byzantine must be fewer than half",
        ),
        (
            lambda: make_federation(GRADIENT, V, jnp.zeros(2), jnp.zeros(5)),
            r"byzantine must be a mask of shape \[clients\], got dtype float64 and shape \(5,\)",
        ),
        (
            lambda: make_federation(GRADIENT, V[:4], jnp.zeros(2), LIARS),
            r"data must have a leading axis of 5 clients .*, got shape \(4, 2\)",
        ),
        (
            lambda: make_federation(GRADIENT, V.at[0].set(jnp.nan), jnp.zeros(2), LIARS),
            r"data must be finite, got 2 NaN or infinite entries",
        ),
        (
            lambda: make_federation(lambda x, d, k: x[0], V, jnp.zeros(2), LIARS),
            r"gradient_fn must return the structure and shapes of start, \(2,\), got \(\)",
        ),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: dm.sample_clients(0, 0.5, num_clients=2),  # pyright: ignore
        lambda: dm.sample_clients_fixed(0, num_clients=2, num_sampled=1),  # pyright: ignore
        lambda: selection.bucketing(0, V, size=1),  # pyright: ignore
        lambda: attacks.gaussian_noise(V, LIARS, 0),  # pyright: ignore
    ],
)
def test_numbers_are_no_keys(call):
    with pytest.raises(TypeError, match="key must be a typed PRNG key"):
        call()


def test_values_are_checked_under_jit():
    rule = checked(jax.jit(lambda f: rules.trimmed_mean(V, num_byzantine=f)))
    assert rule(1).shape == (2,)
    with pytest.raises(checkify.JaxRuntimeError, match=r"num_byzantine must be in \[0, 5/2\)"):
        rule(3)

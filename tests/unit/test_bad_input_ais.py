"""Bad input to the importance samplers is named."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest
from jax.experimental import checkify

from jaxlab.core import checked, run
from jaxlab.inference import ais, ais_numpyro, isir, target, waiting_times

KEY = jax.random.key(0)
LAW = target.heavy_tailed(jnp.zeros(2), 3.0)


def bowl(x):
    return -jnp.sum(x**2) / 2


TARGET = target.make_target(bowl, LAW)

pytestmark = pytest.mark.usefixtures("without_type_checks")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((bowl, dist.Normal(0.0, 1.0)), r"event_shape \(dim,\), got \(\) and \(\); try .to_event"),
        ((bowl, dist.Normal(jnp.zeros(2), 1.0)), r"got \(2,\) and \(\); try"),
        ((bowl, dist.Normal(jnp.zeros((2, 3)), 1.0).to_event(2)), r"got \(\) and \(2, 3\)"),
        ((lambda x: x, LAW), r"logdensity_fn must return one real number, got .*\(2,\)"),
        ((lambda x: jnp.sum(x > 0), LAW), "logdensity_fn must return one real number, got .*int"),
        (
            (bowl, dist.Normal(jnp.array([0.0, jnp.nan]), 1.0, validate_args=False).to_event(1)),
            r"proposal.* must be finite, got 1 NaN",
        ),
    ],
)
def test_targets(parts, message):
    with pytest.raises(ValueError, match=message):
        target.make_target(*parts)


def test_a_proposal_must_be_numpyros():
    with pytest.raises(TypeError, match="proposal must be a NumPyro distribution, got tuple"):
        target.make_target(bowl, (0.0, 1.0))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (jnp.zeros(3), "position must have 2 entries like proposal, got 3"),
        ({"a": jnp.zeros(1)}, "position must have 2 entries like proposal, got 1"),
        (jnp.array([0.0, jnp.inf]), "position must be finite, got 1 NaN or infinite"),
    ],
)
def test_positions(position, message):
    with pytest.raises(ValueError, match=message):
        target.make_target(bowl, LAW, position=position)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0.0}, r"scale must be positive, got 0\.0"),
        ({"scale": jnp.array([1.0, -1.0])}, r"scale must be positive, got \[1\.0, -1\.0\]"),
        ({"scale": 1.0, "df": 0}, "df must be at least 1, got 0"),
    ],
)
def test_global_laws(options, message):
    with pytest.raises(ValueError, match=message):
        target.heavy_tailed(jnp.zeros(2), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"defensive": 0.0}, r"defensive must be in \(0, 1\], got 0\.0"),
        ({"defensive": 1.5}, r"defensive must be in \(0, 1\], got 1\.5"),
        ({"defensive": jnp.nan}, r"defensive must be in \(0, 1\], got nan"),
        ({"bandwidth": 0.0}, r"bandwidth must be positive and finite, got 0\.0"),
        ({"bandwidth": jnp.inf}, r"bandwidth must be positive and finite, got inf"),
        ({"tempering": 0.0}, r"tempering must be in \(0, 1\], got 0\.0"),
        ({"tempering": 2.0}, r"tempering must be in \(0, 1\], got 2\.0"),
    ],
)
def test_hyper_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        ais.ais_hyper(**options)
    by_hand = ais.ais_hyper()._replace(**{k: jnp.asarray(v) for k, v in options.items()})
    with pytest.raises(ValueError, match=message):
        ais.delayed_ais(block_size=4).init(TARGET, by_hand, KEY)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_blocks": 0}, ValueError, "num_blocks must be at least 1, got 0"),
        ({"block_size": 1}, ValueError, "block_size must be at least 2, got 1"),
        ({"block_size": 64.0}, TypeError, "block_size must be a Python integer, got 64.0"),
        ({"lag": -1}, ValueError, "lag must be at least 0, got -1"),
        ({"lag": 5}, ValueError, "lag must be less than num_blocks = 5, got 5"),
        ({"kernel": "box"}, ValueError, "kernel must be one of student_t, gaussian, got 'box'"),
        ({"scale": "wide"}, ValueError, "scale must be one of local, identity, got 'wide'"),
    ],
)
def test_factories(options, error, message):
    with pytest.raises(error, match=message):
        ais.delayed_ais(**options)


def test_a_state_reaches_back_no_further_than_its_lag():
    method = ais.delayed_ais(num_blocks=3, block_size=4, lag=1)
    state = jax.jit(method.init)(TARGET, ais.ais_hyper(), KEY)
    with pytest.raises(ValueError, match="lag must be at most that of the state, 1, got 2"):
        ais.delayed_log_weights(state, 2)
    with pytest.raises(ValueError, match="lag must be at most that of the state, 1, got 2"):
        ais.mixture_log_prob(TARGET, state, jnp.zeros((1, 2)), lag=2)


def test_keys():
    with pytest.raises(TypeError, match="key must be a typed PRNG key"):
        run(ais.delayed_ais(), TARGET, ais.ais_hyper(), 0, num_steps=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="key must be a typed PRNG key"):
        waiting_times.waiting_time_path(jax.random.PRNGKey(0), TARGET, num_jumps=3)
    with pytest.raises(TypeError, match="key must be a typed PRNG key"):
        ais_numpyro.numpyro_target(lambda: None, key=0)  # pyright: ignore[reportArgumentType]


def test_counts_of_the_companions():
    with pytest.raises(ValueError, match="num_candidates must be at least 2, got 1"):
        isir.isir(num_chains=3, num_candidates=1)
    with pytest.raises(ValueError, match="num_chains must be at least 1, got 0"):
        isir.isir(num_chains=0, num_candidates=2)
    with pytest.raises(ValueError, match="num_jumps must be at least 1, got 0"):
        waiting_times.waiting_time_path(KEY, TARGET, num_jumps=0)


def test_tolerances():
    with pytest.raises(ValueError, match=r"tolerance must be positive, got 0\.0"):
        ais.evidence_settled(0.0)


def test_traced_hyper_parameters_are_caught_by_checked():
    method = ais.delayed_ais(num_blocks=1, block_size=4, lag=0)

    def start(defensive):
        hyper = ais.ais_hyper()._replace(defensive=defensive)
        return method.init(TARGET, hyper, KEY).points

    with pytest.raises(checkify.JaxRuntimeError, match="defensive must be in"):
        checked(jax.jit(start))(0.0)


def test_arviz_that_is_missing_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "arviz", None)
    with pytest.raises(ImportError, match=r"pip install 'jaxlab\[experiments\]'"):
        ais_numpyro.to_arviz({"x": jnp.zeros(3)})

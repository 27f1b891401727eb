"""What compiled samplers ask of LAPACK."""

import jax
import jax.numpy as jnp
import pytest

from jaxlab.claims.examine import equations
from jaxlab.inference.ais import ais_hyper, delayed_ais
from jaxlab.inference.target import heavy_tailed, make_target
from jaxlab.inference.waiting_population import waiting_hyper, waiting_population

TARGET = make_target(lambda x: -jnp.sum(x**2) / 2, heavy_tailed(jnp.zeros(2), 3.0))
SAMPLERS = {
    "delayed_ais": (delayed_ais(num_blocks=3, block_size=24), ais_hyper()),
    "waiting_population": (waiting_population(num_particles=24), waiting_hyper()),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_seeds_by_vmap_solve_small_systems_only(name):
    """Two batches of solves with many right-hand sides can wait for each other for ever on CPUs."""
    method, hyper = SAMPLERS[name]
    keys = jax.random.split(jax.random.key(0), 3)
    states = jax.eval_shape(jax.vmap(lambda key: method.init(TARGET, hyper, key)), keys)
    program = jax.make_jaxpr(jax.vmap(lambda s, key: method.step(TARGET, hyper, s, key)))
    solves = [
        equation
        for equation in equations(program(states, keys).jaxpr)
        if equation.primitive.name == "triangular_solve"
    ]
    assert solves  # of a scale, one per seed
    for solve in solves:
        factor, right = (variable.aval.shape for variable in solve.invars)
        assert len(factor) == 2 or right[-2:] == factor[-2:], (factor, right)

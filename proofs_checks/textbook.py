"""A textbook theorem as a claim: the shape of a file of one's own.

Try it with ``jaxlab verify proofs_checks/textbook.py``.
"""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jaxlab.claims import Claim, Comparison, at_most_in_ratio

Quadratic = tuple[Float[Array, " dim"], Float[Array, " dim"]]


def quadratic(dim: int) -> Quadratic:
    """The curvatures of a quadratic, from ``mu`` to ``L`` with both reached, and a start."""
    mu = numpyro.sample("mu", dist.LogUniform(1e-3, 1.0))
    kappa = numpyro.sample("kappa", dist.LogUniform(1.0, 1e3))
    position = jnp.asarray(numpyro.sample("position", dist.Uniform(0.0, 1.0).expand([dim])))
    position = position.at[0].set(0.0).at[-1].set(1.0)
    start = jnp.asarray(numpyro.sample("start", dist.Normal(0.0, 1.0).expand([dim])))
    return jnp.asarray(mu * (1 + (kappa - 1) * position)), start


def nesterov_rate(problem: Quadratic, *, steps: int, momentum_shift: float = 0.0) -> Comparison:
    """Nesterov's method with constant momentum, and the rate of its theorem."""
    curvature, start = problem
    mu, smoothness = curvature.min(), curvature.max()
    q = jnp.sqrt(mu / smoothness)
    momentum = (1 - q) / (1 + q) + momentum_shift

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        x, y = carry
        new = y - curvature * y / smoothness
        return (new, new + momentum * (new - x)), None

    (x, _), _ = jax.lax.scan(step, (start, start), length=steps)
    energy = 0.5 * jnp.sum((curvature + mu) * start**2)
    return at_most_in_ratio(0.5 * jnp.sum(curvature * x**2), (1 - q) ** steps * energy)


NESTEROV = Claim(
    name="textbook/nesterov",
    statement="f(x_k) - f* <= (1 - sqrt(mu/L))^k (f(x_0) - f* + mu/2 |x_0 - x*|^2)",
    source="Nesterov 2004, Theorem 2.2.3",
    families={"quadratic": quadratic},
    conclusion=nesterov_rate,
    assumptions=lambda problem: problem[0].min(),
    sizes={"dim": st.sampled_from([1, 2, 6]), "steps": st.sampled_from([0, 1, 20])},
    typical={"dim": 6, "steps": 20},
    mutants={"momentum 0.1 too small": {"momentum_shift": -0.1}},
)

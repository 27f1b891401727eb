"""Claims whose truth is known, to test the ladder itself."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from hypothesis import strategies as st

from jaxlab.claims import Claim, Expectation, at_most, at_most_in_ratio

STEPS, DIM = 20, 6


def vector(dim):
    return numpyro.sample("x", dist.Normal(0.0, 1.0).expand([dim]))


def norms(x, *, dim, factor=1.0):
    return at_most_in_ratio(jnp.abs(x).sum(), factor * jnp.sqrt(dim) * jnp.linalg.norm(x))


def cauchy_schwarz(**changes):
    settings = {
        "name": "toy/cauchy_schwarz",
        "statement": "|x|_1 <= sqrt(d) |x|_2",
        "source": "Cauchy-Schwarz",
        "families": {"normal": vector},
        "conclusion": norms,
        "assumptions": lambda x: jnp.isfinite(x).all(),
        "sizes": {"dim": st.sampled_from([1, 2, 5])},
        "typical": {"dim": 5},
        "mutants": {"constant 10% too small": {"factor": 0.9}},
        "boundary": {"ones": lambda *, dim: jnp.ones(dim)},
        "tightness": "tight",
    }
    return Claim(**{**settings, **changes})


def quadratic(dim):
    """A spectrum in [mu, mu kappa] that reaches both ends, and a start."""
    mu = numpyro.sample("mu", dist.LogUniform(1e-3, 1.0))
    kappa = numpyro.sample("kappa", dist.LogUniform(1.0, 1e3))
    position = numpyro.sample("position", dist.Uniform(0.0, 1.0).expand([dim]))
    position = position.at[0].set(0.0).at[-1].set(1.0)
    start = numpyro.sample("start", dist.Normal(0.0, 1.0).expand([dim]))
    return mu * (1 + (kappa - 1) * position), start


def nesterov_rate(problem, *, steps, momentum_shift=0.0):
    """Constant momentum on a diagonal quadratic, written apart from the library."""
    curvature, start = problem
    mu, smoothness = curvature.min(), curvature.max()
    q = jnp.sqrt(mu / smoothness)
    beta = (1 - q) / (1 + q) + momentum_shift

    def step(carry, _):
        x, y = carry
        new = y - curvature * y / smoothness
        return (new, new + beta * (new - x)), None

    (x, _), _ = jax.lax.scan(step, (start, start), length=steps)
    gap = 0.5 * jnp.sum(curvature * x**2)
    energy = 0.5 * jnp.sum(curvature * start**2) + 0.5 * mu * jnp.sum(start**2)
    return at_most_in_ratio(gap, (1 - q) ** steps * energy)


def nesterov():
    return Claim(
        name="toy/nesterov",
        statement="f(x_k) - f* <= (1 - sqrt(mu/L))^k (f(x_0) - f* + mu/2 |x_0 - x*|^2)",
        source="Nesterov 2004, Theorem 2.2.3",
        families={"quadratic": quadratic},
        conclusion=nesterov_rate,
        assumptions=lambda problem: problem[0].min(),
        sizes={"dim": st.just(DIM), "steps": st.sampled_from([0, 1, STEPS])},
        typical={"dim": DIM, "steps": STEPS},
        mutants={"momentum off by -0.1": {"momentum_shift": -0.1}},
        rungs=("sample", "attack"),
    )


def bounded_mean(probability, *, shift=0.0):
    """``E X <= bound`` at equality for a Bernoulli variable X."""

    def conclusion(p, *, key, shift=shift):
        values = jax.random.bernoulli(key, p, (2000,)).astype(float) + shift
        return Expectation(values, p, jnp.array(0.0) + shift, jnp.array(1.0) + shift)

    def family():
        return numpyro.sample("p", dist.Uniform(0.25, probability))

    return Claim(
        name="toy/mean",
        statement="E X <= p for X ~ Bernoulli(p)",
        source="definition",
        families={"bernoulli": family},
        conclusion=conclusion,
        assumptions=lambda p: p * (1 - p),
        mutants={"biased by 0.3": {"shift": 0.3}},
        stochastic=True,
        tightness="tight",
        samples=8,
        restarts=4,
    )


def vacuous():
    """The premise ``x > 5`` that the family never meets."""
    return cauchy_schwarz(
        name="toy/vacuous",
        families={"small": lambda dim: numpyro.sample("x", dist.Uniform(0, 1).expand([dim]))},
        assumptions=lambda x: (x > 5).all(),
        boundary={},
    )


def yields_nan():
    """A margin that is NaN on a small part of the instances, in batches beyond 4096."""

    def conclusion(x, *, factor=1.0):
        bad = x[0] > 3.0
        return at_most(jnp.where(bad, jnp.nan, 0.0), factor)

    return cauchy_schwarz(
        name="toy/nan",
        conclusion=conclusion,
        mutants={"negative": {"factor": -1.0}},
        boundary={},
    )

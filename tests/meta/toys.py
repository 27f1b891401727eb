"""Claims whose truth is known, to test the ladder itself."""

import dataclasses

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from hypothesis import strategies as st

from jaxlab.claims import Claim, Expectation, at_most, at_most_in_ratio
from jaxlab.core.locate import load_companion


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


def nesterov():
    """The textbook's claim, without Hypothesis."""
    claim = load_companion("proofs_checks", "textbook").NESTEROV
    return dataclasses.replace(claim, rungs=("sample", "attack"))


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

"""Setpoints for the tests of steering."""

import jax.numpy as jnp
import numpy as np

from jaxlab.language.setpoints import FeatureSetpoint


def random_setpoint(generator, layers, dim):
    """Unit directions, offsets of either sign and positive scales."""
    v = generator.normal(size=(layers + 1, dim))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    return FeatureSetpoint(
        jnp.asarray(v),
        jnp.asarray(generator.normal(size=layers + 1)),
        jnp.asarray(generator.uniform(0.5, 2.0, size=layers + 1)),
    )

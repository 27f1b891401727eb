"""Wrong input to regulators and to steering is refused by the argument's name."""

import jax
import jax.numpy as jnp
import pytest

from jaxlab.control import tracking
from jaxlab.control.lqr import LinearSystem, Weights, riccati
from jaxlab.language import controllers, plants, policies
from jaxlab.language.feature_lqr import feature_lqr
from jaxlab.language.lqr_steering import SteeringProblem, lqr_steering, steering_hyper
from jaxlab.language.setpoints import FeatureSetpoint, contrast_setpoint
from jaxlab.models.config import LlamaConfig
from jaxlab.models.llama import CausalLM

pytestmark = pytest.mark.usefixtures("without_type_checks")

DIM = 3
SYSTEM = LinearSystem(jnp.ones((4, DIM, DIM)))
WEIGHTS = Weights(1.0, 1.0, 1.0)
POINT = FeatureSetpoint(jnp.ones((4, DIM)), jnp.zeros(4), jnp.ones(4))
PLANT = plants.linear_plant(LinearSystem(jnp.ones((3, DIM, DIM))), jnp.ones(DIM))
LM = CausalLM(LlamaConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2, mlp_dim=8))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: riccati(LinearSystem(jnp.ones((2, 3))), WEIGHTS),
            r"system\.transitions must have",
        ),
        (
            lambda: riccati(SYSTEM._replace(drifts=jnp.ones((4, 2))), WEIGHTS),
            r"system\.drifts must have leading axes of 4 steps and 3 dimensions, got shape",
        ),
        (
            lambda: riccati(SYSTEM, WEIGHTS._replace(input=0.0)),
            r"weights\.input must be positive, got 0\.0",
        ),
        (
            lambda: riccati(SYSTEM, WEIGHTS._replace(state=-1.0)),
            r"weights\.state must be at least 0, got -1\.0",
        ),
        (
            lambda: riccati(SYSTEM, WEIGHTS._replace(state=jnp.ones(3))),
            r"weights\.state must have a leading axis of 4 steps, got shape \(3,\)",
        ),
        (
            lambda: riccati(SYSTEM, WEIGHTS._replace(final=jnp.eye(2))),
            r"weights must be matrices of 3 x 3, got shape \(2, 2\)",
        ),
        (
            lambda: riccati(SYSTEM, WEIGHTS, jnp.ones((4, 3))),
            r"targets must have shape \(5, 3\), got \(4, 3\)",
        ),
        (lambda: tracking.apriori_bound(1.0, 1.0, 1.0, num_steps=1), r"rate must be in \[0, 1\)"),
        (
            lambda: tracking.tracking_bound(jnp.eye(3), jnp.ones(()), -jnp.ones(2)),
            "remainders must be at least 0",
        ),
        (lambda: plants.model_plant(LM, {}, jnp.array([1])), "tokens must be at least 2"),
        (
            lambda: contrast_setpoint(jnp.ones((3, 2, 4)), jnp.ones((2, 2, 4))),
            r"negative must have the layers and dimensions of positive, \(3, 4\), got \(2, 4\)",
        ),
        (
            lambda: policies.feedback_policy(jnp.ones((5, DIM)), POINT),
            r"vectors must have a leading axis of 3 layers, got shape \(5, 3\)",
        ),
        (lambda: policies.stack_policies([]), "policies must be at least one, got none"),
        (lambda: controllers.combine(), "controllers must be at least one, got none"),
        (lambda: controllers.s_pid(POINT, 1.0, reset_every=0), "reset_every must be at least 1"),
        (
            lambda: controllers.act_add(jnp.ones((4, DIM)), jnp.ones(4)),
            r"coefficients must have a leading axis of 3 layers, got shape \(4,\)",
        ),
        (lambda: steering_hyper(1.0, input_cost=0.0), "input_cost must be positive, got 0.0"),
        (lambda: steering_hyper(1.0, state_cost=-1.0), "state_cost must be at least 0, got -1.0"),
        (
            lambda: feature_lqr(
                lambda A, y: A.T @ y,
                jnp.ones((2, 1, 1)),
                jnp.zeros((2, 1)),
                FeatureSetpoint(jnp.ones((3, 1)), jnp.zeros(3), jnp.ones(3)),
                Weights(1.0, 0.0, 1.0),
            ),
            r"weights\.input must be a positive number, got 0\.0",
        ),
        (
            lambda: lqr_steering().init(
                SteeringProblem(PLANT, jnp.full((3, DIM, DIM), jnp.nan), POINT),
                steering_hyper(1.0),
                jax.random.key(0),
            ),
            r"problem\.jacobians must be finite",
        ),
        (
            lambda: lqr_steering().init(
                SteeringProblem(PLANT, jnp.ones((2, DIM, DIM)), POINT),
                steering_hyper(1.0),
                jax.random.key(0),
            ),
            r"problem\.plant\.layers.* must have a leading axis of 2 layers",
        ),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()

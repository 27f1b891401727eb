"""Steering of a language model's layers: against the model itself, and against decoding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from jaxlab.control.lqr import Weights
from jaxlab.language import controllers, lqr_studies, plants, policies
from jaxlab.language.feature_lqr import feature_lqr, plant_feature_lqr
from jaxlab.language.setpoints import contrast_setpoint, features
from jaxlab.models.cache import decode_step, prefill
from jaxlab.models.config import LlamaConfig
from jaxlab.models.generate import pad_prompts
from jaxlab.models.llama import CausalLM
from tests.language.points import random_setpoint

GENERATOR = np.random.default_rng(3)
LAYERS, DIM = 2, 8
LM = CausalLM(
    LlamaConfig(vocab_size=11, dim=DIM, num_layers=LAYERS, num_heads=2, num_kv_heads=1, mlp_dim=12)
)
TOKENS, MASK = pad_prompts([[3, 1, 4, 1, 5], [9, 2]], shortest=8)


@functools.cache
def params():
    # From NumPy: each draw of JAX's would be compiled.
    draw = np.random.default_rng(0).normal
    return jax.tree.map(lambda leaf: jnp.asarray(draw(size=leaf.shape) / 4), LM.shapes())


@functools.cache
def plant():
    return jax.jit(lambda p: plants.model_plant(LM, p, TOKENS, mask=MASK))(params())


POINT = random_setpoint(GENERATOR, LAYERS, DIM)
VECTORS = GENERATOR.normal(size=(LAYERS, DIM))


# Layers of a model -----------------------------------------------------------------------------


@jax.jit
def linearised(weights, tokens, mask):
    """States, Jacobians, and central differences along one direction."""
    made = plants.model_plant(LM, weights, tokens, mask=mask)
    states = plants.trajectory(made)
    width = 1e-6 * jnp.asarray(VECTORS[0])

    def slope(entry):
        layer, z = entry
        return (made.advance(layer, z + width) - made.advance(layer, z - width)) / 2e-6

    slopes = jax.lax.map(slope, (made.layers, states[:-1]))
    return states, plants.layer_jacobians(made, states), slopes


def test_a_batch_of_prompts_is_the_model():
    states = jax.jit(plants.trajectory)(plant())
    hidden = jax.jit(lambda p: LM.hidden_states(p, TOKENS, mask=MASK))(params())
    np.testing.assert_allclose(states, hidden[:, :, -1], rtol=1e-10)
    mean = jax.jit(plants.layer_jacobians)(plant(), states)
    singles = []
    for i in range(2):
        alone, jacobians, slopes = linearised(params(), TOKENS[i], MASK[i])
        np.testing.assert_allclose(alone, states[:, i], rtol=1e-10)
        np.testing.assert_allclose(jacobians @ VECTORS[0], slopes, rtol=1e-5, atol=1e-6)
        singles.append(jacobians)
    np.testing.assert_allclose(mean, sum(singles) / 2, rtol=1e-8, atol=1e-10)


def test_products_without_matrices_equal_those_with():
    states = jax.jit(plants.trajectory)(plant())
    matrices = jax.jit(plants.layer_jacobians)(plant(), states)
    solve = jax.jit(lambda p, z: plant_feature_lqr(p, z, POINT, Weights(0.5, 2.0, 1.0)))
    policy = solve(plant(), states)
    system = plants.linearize(matrices, states.mean(axis=1))
    dense = feature_lqr(
        lambda A, y: A.T @ y, matrices, system.drifts, POINT, Weights(0.5, 2.0, 1.0)
    )
    for a, b in zip(policy, dense, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_residuals_vanish_where_the_system_was_taken():
    one = jax.jit(lambda p: plants.model_plant(LM, p, TOKENS[0], mask=MASK[0]))(params())
    states, jacobians, _ = linearised(params(), TOKENS[0], MASK[0])
    system = plants.linearize(jacobians, states)
    residuals = jax.jit(plants.linearization_residuals)
    np.testing.assert_allclose(residuals(one, system, states), 0, atol=1e-10)
    # Of second order: a tenth of the distance leaves a hundredth.
    far, near = (np.abs(residuals(one, system, states + s * 1e-3)).max() for s in (1.0, 0.1))
    assert 60 < far / near < 160


@pytest.mark.parametrize("name", ["low rank", "pid"])
def test_decoding_is_steered_like_the_plant(name):
    if name == "pid":
        controller = controllers.s_pid(POINT, 1.0, reset_every=2)
    else:
        policy = policies.feedback_policy(jnp.asarray(VECTORS), POINT)
        controller = controllers.low_rank(policy, 1.0)

    @jax.jit
    def decode(p):
        cache = prefill(LM, p, TOKENS[:, :-1], slots=9, mask=MASK[:, :-1])
        control = controllers.decoding_control(controller)
        return decode_step(LM, p, cache, TOKENS[:, -1], control=control)[0]

    logits = decode(params())
    done = controllers.steer(plant(), controller)
    np.testing.assert_allclose(logits, LM.unembed(params(), done.states[-1]), rtol=1e-9)
    assert np.abs(done.inputs).max() > 0.1


# Studies ---------------------------------------------------------------------------------------

WORDS = lqr_studies.Words(jnp.array([1, 2]), jnp.array([7]))


def test_what_steering_does_to_the_next_token():
    controller = controllers.proportional(0.5, POINT, 1.0)
    free = jax.jit(lambda p: LM.logits(p, TOKENS, mask=MASK)[:, -1])(params())
    seen = jax.jit(
        lambda p, plant: lqr_studies.next_token(LM, p, plant, controller, POINT, WORDS, free)
    )(params(), plant())
    done = controllers.steer(plant(), controller)
    steered = scipy.special.softmax(np.asarray(LM.unembed(params(), done.states[-1])), axis=1)
    unsteered = scipy.special.softmax(np.asarray(free), axis=1)
    np.testing.assert_allclose(
        seen.divergence, scipy.special.rel_entr(steered, unsteered).sum(axis=1), rtol=1e-8
    )
    odds = np.log(steered[:, 1] + steered[:, 2]) - np.log(steered[:, 7])
    np.testing.assert_allclose(seen.score, odds, rtol=1e-8)
    np.testing.assert_allclose(seen.energy, (np.asarray(done.inputs) ** 2).sum(axis=(0, 2)))
    np.testing.assert_allclose(seen.features[2], done.states[2] @ POINT.directions[2], rtol=1e-12)


def test_continuations_are_judged_without_steering():
    policy, question = policies.constant_policy(jnp.asarray(VECTORS)), jnp.array([6, 6])
    made = jax.jit(
        lambda p, key: lqr_studies.continuations(
            LM, p, TOKENS, MASK, question, WORDS, policy, 1.0, key, max_new_tokens=3
        )
    )(params(), jax.random.key(4))
    for i, prompt in enumerate(([3, 1, 4, 1, 5], [9, 2])):
        text = jnp.array([*prompt, *made.tokens[i].tolist(), 6, 6])
        logits = jax.jit(LM.logits)(params(), text)
        chosen = jax.nn.log_softmax(logits)[jnp.arange(len(text) - 1), text[1:]]
        scores = chosen[len(prompt) - 1 : len(prompt) + 2]
        np.testing.assert_allclose(made.nats[i], -scores.mean(), rtol=1e-8)
        odds = lqr_studies.word_score(logits[-1], WORDS)
        np.testing.assert_allclose(made.score[i], odds, rtol=1e-8)


@pytest.mark.lm
def test_the_real_model_is_steered(smollm):
    lm, weights, tokenizer = smollm
    sides = [
        pad_prompts([tokenizer.encode(text) for text in texts])
        for texts in (("I loved this film, it was", "A lovely day, it was"),
                      ("I hated this film, it was", "An awful day, it was"), ("The movie was",))
    ]  # fmt: skip

    @jax.jit
    def measure(weights, sides):
        good, bad, test = (plants.model_plant(lm, weights, t, mask=m) for t, m in sides)
        states = [plants.trajectory(side) for side in (good, bad)]
        point = contrast_setpoint(*states, centered=True)
        policy = plant_feature_lqr(good, states[0], point, Weights(0.1, 10.0, 1.0))

        def ends(strength):
            done = controllers.steer(test, controllers.low_rank(policy, strength))
            return features(point, done.states)[-1, 0], jnp.sum(done.inputs**2)

        return jax.lax.map(ends, jnp.array([-2.0, 0.0, 2.0], jnp.float32))

    feature, energy = measure(weights, sides)
    assert (np.diff(feature) > 0).all()
    assert (energy > 0).all()

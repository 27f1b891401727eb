"""One row per method: the smallest problem on which every part of it works."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxlab.control.lqr import LinearSystem
from jaxlab.core import Method
from jaxlab.diffusion.gaussian import gaussian_prior
from jaxlab.diffusion.learned import Training
from jaxlab.diffusion.lmaps import lmaps
from jaxlab.diffusion.memorization_training import gap_hyper, gap_training
from jaxlab.diffusion.operators import matrix_operator
from jaxlab.diffusion.restoration import Restoration, lmaps_hyper
from jaxlab.inference.ais import ais_hyper, delayed_ais
from jaxlab.inference.target import heavy_tailed, make_target
from jaxlab.language.lqr_steering import SteeringProblem, lqr_steering, steering_hyper
from jaxlab.language.plants import linear_plant
from jaxlab.language.setpoints import FeatureSetpoint
from jaxlab.optim import federated, inexact_agd
from jaxlab.optim.byzantine_aggregators import geometric_median
from jaxlab.optim.byzantine_attacks import sign_flip
from jaxlab.optim.demoa import demoa, demoa_hyper, without_history
from jaxlab.optim.dual_sgd import dual_sgd, dual_sgd_hyper
from jaxlab.optim.lie_bracket import OrderedHyper, ordered, ordered_sgd
from jaxlab.optim.meta_gain import (
    TaskFamily,
    adaptation,
    adaptation_hyper,
    fomaml,
    fomaml_hyper,
)
from jaxlab.optim.oeu import Labelled, Unlearning, classification_losses, oeu, oeu_hyper
from jaxlab.problems import consensus, graphs
from jaxlab.problems.federation import make_federation
from jaxlab.problems.quadratic import random_quadratics
from jaxlab.theory import nse_amp
from jaxlab.theory.multitask_em import TaskCounts, em_hyper, task_type_em
from jaxlab.theory.nse_activations import smooth

NUM_AGENTS, DIM, NUM_LOCAL_STEPS = 4, 3, 12
MU, BIG = 1.0, 6.0
GOSSIP = graphs.metropolis_weights(graphs.star_graph(NUM_AGENTS))
START = jnp.array([0.5, -1.0, 2.0])
KEY = jax.random.key(8)
LINK = smooth(jnp.cos, num_nodes=16)


class Case(NamedTuple):
    """A method and how to conform it.

    Attributes:
        make: The method.
        hyper: Its hyper-parameters in float64.
        problem: ``(noise, tree) -> problem`` in float64; ``tree`` asks for parameters as a tree.
        noise: Whether its gradients may be random.
        smooth: Which fields of ``hyper`` the result is a smooth function of.
        agents: Whether its state has an agents axis.
        sampler: Whether it draws numbers whatever the noise.
        trees: Whether its parameters may be a tree.
    """

    make: Callable[[], Method]
    hyper: Any
    problem: Callable[[float, bool], Any]
    noise: bool = True
    smooth: tuple[str, ...] = ()
    agents: bool = True
    sampler: bool = False
    trees: bool = True


def as_tree(x):
    return {"head": x[:1], "tail": {"rest": x[1:]}}


def as_vector(params):
    if isinstance(params, dict):
        return jnp.concatenate([params["head"], params["tail"]["rest"]])
    return params


def noisy_gradient(params, data, key):
    """``H x - b`` plus noise, in the structure of ``params``."""
    x = as_vector(params)
    gradient = data["hessian"] @ x - data["linear"]
    gradient = gradient + data["noise"] * jax.random.normal(key, x.shape, x.dtype)
    return as_tree(gradient) if isinstance(params, dict) else gradient


def _data(noise):
    stack = random_quadratics(
        KEY, num_agents=NUM_AGENTS, dim=DIM, strong_convexity=MU, smoothness=BIG
    )
    return {**stack._asdict(), "noise": jnp.full(NUM_AGENTS, noise)}


def consensus_problem(noise, tree, order=None):
    """Agents on a star; ``order`` renumbers them."""
    data, gossip = _data(noise), GOSSIP
    if order is not None:
        data = jax.tree.map(lambda leaf: leaf[order], data)
        gossip = gossip[order][:, order]
    start = as_tree(START) if tree else START
    return consensus.make_consensus(noisy_gradient, data, start, gossip)


def oracle(noise, tree):
    data = jax.tree.map(lambda leaf: leaf[0], _data(noise))
    return inexact_agd.Oracle(as_tree(START) if tree else START, data)


def ridge_oracle(noise, tree):
    start, data = oracle(noise, tree)
    return inexact_agd.Oracle(start, (jnp.asarray(0.2, dtype=float), data))


def amp_problem(noise, tree):
    """A noisy phase retrieval in six dimensions; AMP itself is deterministic."""
    del noise, tree
    data = nse_amp.sample_single_index(KEY, LINK, 2.0, num_samples=24, dim=6)
    start = nse_amp.informed_start(jax.random.key(2), data.teacher, 0.4)
    return nse_amp.AMPProblem(data.features, data.labels, LINK, start)


def _number(value):
    return jnp.asarray(value, dtype=float)


SPECTRUM = graphs.gossip_spectrum(GOSSIP)
LOCAL = federated.LocalHyper(_number(0.05))
AGD = inexact_agd.AGDHyper(_number(1 / BIG), _number((MU / BIG) ** 0.5))
DUAL = dual_sgd_hyper(MU, BIG, SPECTRUM, num_local_steps=NUM_LOCAL_STEPS)


def federation(noise, tree):
    """A server and four clients, the last of which lies."""
    liars = jnp.arange(NUM_AGENTS) == NUM_AGENTS - 1
    start = as_tree(START) if tree else START
    return make_federation(noisy_gradient, _data(noise), start, liars)


def two_bumps(noise, tree):
    """An asymmetric target in two dimensions; samplers need no gradients that could be noisy."""
    del noise, tree

    def logdensity(x):
        return jnp.logaddexp(-jnp.sum((x - 2) ** 2) / 2, 0.5 - jnp.sum((x + 1) ** 2))

    return make_target(logdensity, heavy_tailed(jnp.zeros(2), 3.0))


def six_signals(noise, tree):
    """A training set of numbers and a network of one weight; levels are drawn anyway."""
    del noise, tree
    return Training(jnp.ones(()), jax.random.normal(KEY, (6, 1)))


def restoration(noise, tree):
    """Two measured combinations of three entries, from a Gaussian prior."""
    del noise, tree
    prior = gaussian_prior(START, jnp.diag(jnp.array([1.0, 0.5, 2.0])))
    matrix = jnp.array([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0]])
    sigmas = jnp.array([3.0, 2.0, 1.2, 0.7, 0.4])
    return Restoration(
        prior.denoise, matrix_operator(matrix), jnp.array([0.3, -0.4]), sigmas, 3.0 * START
    )


def four_layers(noise, tree):
    """A linear plant of four layers; steering is deterministic."""
    del noise, tree
    matrices = 0.3 * jax.random.normal(KEY, (4, DIM, DIM)) + jnp.eye(DIM)[None]
    directions = jnp.tile(jnp.array([0.6, 0.0, 0.8]), (5, 1))
    point = FeatureSetpoint(directions, jnp.full(5, 0.1), jnp.linspace(1.0, 2.0, 5))
    return SteeringProblem(linear_plant(LinearSystem(matrices), START), matrices, point)


def two_sources(noise, tree):
    """Tanh units on two sources in turn; plain SGD is deterministic."""
    del noise, tree
    weights = jax.random.normal(KEY, (2, 5, DIM))

    def units(x, weights):
        return jnp.sum(jnp.tanh(weights @ x)) / 5

    return ordered(units, START, weights, jnp.array([1, 0, 0, 1]))


def ten_rows(noise, tree):
    """A linear classifier of three classes; batches are drawn anyway."""
    del noise, tree
    x = jax.random.normal(KEY, (10, DIM))
    parts = (Labelled(x[part], jnp.arange(10)[part] % 3) for part in (slice(4), slice(4, 10)))
    return Unlearning(jnp.outer(START, jnp.array([1.0, 0.0, -0.5])), *parts)


def twelve_tasks(noise, tree):
    """Counts of two types of tasks; expectation maximisation is deterministic."""
    del noise, tree
    plus, minus = jnp.array([[7, 1, 0, 2, 6], [1, 1, 2, 0, 0]])
    return TaskCounts(plus, minus, jnp.full(5, 9), jnp.array([1.0, 4.0, 3.0, 2.0, 2.0]))


def curved_loss(params, centre):
    """Curvature that changes, so that every step counts."""
    away = as_vector(params) - centre
    return jnp.sum(away**2) / 2 + jnp.sum(jnp.cos(away))


def four_tasks(noise, tree):
    """Four tasks; their gradients are exact."""
    del noise
    start = as_tree(START) if tree else START
    return TaskFamily(start, jax.random.normal(KEY, (4, DIM)))


PAPER_CASES = {
    "ais.delayed_ais": Case(
        lambda: delayed_ais(num_blocks=2, block_size=16, lag=1),
        ais_hyper(defensive=0.3, bandwidth=0.8, tempering=0.9),
        two_bumps,
        smooth=("bandwidth",),
        agents=False,
        sampler=True,
        trees=False,
    ),
    "demoa.demoa": Case(
        lambda: demoa(
            without_history(geometric_median), attack=lambda v, liars, key: sign_flip(v, liars)
        ),
        demoa_hyper(0.6, momentum=0.4, step_size=0.05),
        federation,
        smooth=("momentum", "step_size"),
        agents=False,
        sampler=True,
        trees=False,  # the cache is one matrix whatever the parameters are
    ),
    "dual_sgd.dual_sgd": Case(
        lambda: dual_sgd(num_local_steps=NUM_LOCAL_STEPS),
        DUAL,
        consensus_problem,
        smooth=("dual_step_size", "rate", "step_size"),
    ),
    "memorization.gap_training": Case(
        lambda: gap_training(lambda w, x, noise: w * x, optax.sgd(0.05), batch_size=3),
        gap_hyper(0.8, gap=(0.2, 0.6), keep=0.5),
        six_signals,
        smooth=("data_scale",),
        agents=False,
        sampler=True,
        trees=False,
    ),
    "lie_bracket.ordered_sgd": Case(
        ordered_sgd,
        OrderedHyper(_number(0.1)),
        two_sources,
        noise=False,
        smooth=("step_size",),
        agents=False,
        trees=False,
    ),
    "lmaps.lmaps": Case(
        lmaps,
        lmaps_hyper(0.5, scale=0.8, rho=0.6),
        restoration,
        smooth=("noise", "scale", "rho"),
        agents=False,
        sampler=True,
        trees=False,
    ),
    "lqr_steering.lqr_steering": Case(
        lqr_steering,
        steering_hyper(1.5, state_cost=0.5, input_cost=2.0),
        four_layers,
        noise=False,
        smooth=("strength", "state_cost", "input_cost", "final_cost"),
        agents=False,
        trees=False,
    ),
    "oeu.oeu": Case(
        lambda: oeu(*classification_losses(lambda w, x: x @ w), batch_size=3),
        oeu_hyper(0.3, 0.7),
        ten_rows,
        smooth=("step_size", "strength"),
        agents=False,
        trees=False,
    ),
    "multitask_limits.task_type_em": Case(
        task_type_em,
        em_hyper(0.7),
        twelve_tasks,
        noise=False,
        smooth=("pseudo",),
        agents=False,
        trees=False,
    ),
    "meta_gain.adaptation": Case(
        lambda: adaptation(curved_loss),
        adaptation_hyper(0.3),
        four_tasks,
        noise=False,
        smooth=("step_size",),
        agents=False,
    ),
    "meta_gain.fomaml": Case(
        lambda: fomaml(curved_loss, optax.sgd(0.4), num_inner_steps=2, batch_size=2),
        fomaml_hyper(0.3),
        four_tasks,
        smooth=("inner_step_size",),
        agents=False,
        sampler=True,
        trees=False,
    ),
    "nse.amp": Case(
        nse_amp.amp,
        nse_amp.AMPHyper(_number(2.0)),
        amp_problem,
        noise=False,
        smooth=("snr",),
        agents=False,
        trees=False,
    ),
}
BASELINE_CASES = {
    "federated.fedavg": Case(
        lambda: federated.fedavg(num_local_steps=3), LOCAL, consensus_problem, smooth=("step_size",)
    ),
    "federated.scaffold": Case(
        lambda: federated.scaffold(num_local_steps=3),
        LOCAL,
        consensus_problem,
        smooth=("step_size",),
    ),
    # The result jumps where the coin falls differently: no gradient in the probability.
    "federated.scaffnew": Case(
        federated.scaffnew,
        federated.ScaffnewHyper(_number(0.1), _number(0.4)),
        consensus_problem,
        smooth=("step_size",),
    ),
    "federated.gradient_tracking": Case(
        federated.gradient_tracking, LOCAL, consensus_problem, smooth=("step_size",)
    ),
    # Newton's method solves for the gradient's root, which noise would move between its steps.
    "federated.ssda": Case(
        federated.ssda,
        federated.ssda_hyper(MU, BIG, SPECTRUM),
        consensus_problem,
        noise=False,
        smooth=("dual_step_size", "rate"),
    ),
    "inexact_agd.inexact_agd": Case(
        lambda: inexact_agd.inexact_agd(noisy_gradient),
        AGD,
        oracle,
        smooth=("step_size", "rate"),
        agents=False,
    ),
    "inexact_agd.reproducible_agd": Case(
        lambda: inexact_agd.reproducible_agd(noisy_gradient),
        AGD,
        ridge_oracle,
        smooth=("step_size", "rate"),
        agents=False,
    ),
}
CASES = PAPER_CASES | BASELINE_CASES

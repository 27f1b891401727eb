"""A denoiser learned on the spot: small networks of Flax, trained by optax in one compiled loop.

``train_denoiser`` is the short way. Below it, ``denoiser_training`` is a ``Method``, so that the
runners of ``jaxlab.core`` trace, resume and batch trainings like any other iteration. float32 is
the networks' own precision and suffices.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, PyTree

from jaxlab.core.checks import check_count, check_finite, check_key, check_value
from jaxlab.core.iterate import run
from jaxlab.core.types import Method, Scalar
from jaxlab.diffusion.edm import (
    NoiseSampler,
    check_data_scale,
    denoising_loss,
    log_normal_noise,
    preconditioned,
)
from jaxlab.diffusion.networks import split_network

__all__ = [
    "LearnedDenoiser",
    "TrainedDenoiser",
    "Training",
    "TrainingHyper",
    "TrainingInfo",
    "TrainingState",
    "denoiser_training",
    "train_denoiser",
]


class LearnedDenoiser(eqx.Module):
    """A network with its parameters as a denoiser; a pytree.

    Attributes:
        apply: ``(params, scaled signal, noise label) -> output``.
        params: The parameters.
        data_scale: The standard deviation of the data's entries.
    """

    apply: Callable[[Any, Any, Any], Any] = eqx.field(static=True)
    params: PyTree
    data_scale: Scalar

    def __call__(self, x: Float[Array, "*shape"], sigma: Scalar) -> Float[Array, "*shape"]:
        """The estimate of the clean signal."""
        network = functools.partial(self.apply, self.params)
        return preconditioned(network, self.data_scale)(x, sigma).astype(x.dtype)


class Training(NamedTuple):
    """What is trained, and on what.

    Attributes:
        params: The first parameters.
        rows: Clean signals, of any shape.
    """

    params: PyTree
    rows: Float[Array, "rows *shape"]


class TrainingHyper(NamedTuple):
    """Hyper-parameters of the loss; the step sizes are the optimizer's.

    Attributes:
        data_scale: The standard deviation of the data's entries.
    """

    data_scale: Float[Array, ""]


class TrainingState(NamedTuple):
    """A training.

    Attributes:
        params: What is descended.
        average: The exponential moving average of ``params`` without bias, the answer.
        optimizer: The optimizer's state.
        averaging: The average's state.
    """

    params: PyTree
    average: PyTree
    optimizer: PyTree
    averaging: PyTree


class TrainingInfo(NamedTuple):
    """Diagnostics of one step.

    Attributes:
        loss: Of the step's batch, before the step.
    """

    loss: Float[Array, ""]


def denoiser_training(
    apply: Callable[[Any, Any, Any], Any],
    optimizer: optax.GradientTransformation,
    *,
    batch_size: int,
    noise: NoiseSampler,
    decay: float = 0.999,
) -> Method:
    """Stochastic descent of ``edm.denoising_loss``, on rows drawn with replacement.

    The problem is a ``Training``, the hyper-parameters a ``TrainingHyper``, the state a
    ``TrainingState`` and the info a ``TrainingInfo``.

    Args:
        apply: The network, ``(params, scaled signal, noise label) -> output``.
        optimizer: Of optax.
        batch_size: Rows per step.
        noise: Levels and weights, such as ``edm.log_normal_noise()``.
        decay: Of the average, in [0, 1).

    Raises:
        TypeError: ``batch_size`` is not an integer.
        ValueError: It is less than 1, or ``decay`` is out of range. ``init`` raises it for rows
            that are missing or not finite.

    Example:
        >>> apply = lambda params, x, noise: params * x
        >>> method = denoiser_training(
        ...     apply, optax.sgd(0.1), batch_size=4, noise=log_normal_noise()
        ... )
        >>> problem = Training(jnp.zeros(()), jnp.ones((8, 2)))
        >>> hyper = TrainingHyper(jnp.asarray(0.5))
        >>> run(method, problem, hyper, jax.random.key(0), num_steps=3).trace.loss.shape
        (3,)
    """
    check_count("batch_size", batch_size)
    check_value("decay", decay, lambda d: (d >= 0) & (d < 1), "in [0, 1)")
    averaging = optax.ema(decay, debias=True)

    def init(problem: Training, hyper: TrainingHyper, key: Array) -> TrainingState:
        check_key("key", key)
        if not jnp.size(problem.rows):
            raise ValueError(f"rows must hold at least one signal, got {jnp.shape(problem.rows)}")
        check_finite("rows", problem.rows)
        check_data_scale(hyper.data_scale)
        params = problem.params
        return TrainingState(params, params, optimizer.init(params), averaging.init(params))

    def step(
        problem: Training, hyper: TrainingHyper, state: TrainingState, key: Array
    ) -> tuple[TrainingState, TrainingInfo]:
        key_rows, key_loss = jax.random.split(key)
        chosen = jax.random.randint(key_rows, (batch_size,), 0, len(problem.rows))
        batch = problem.rows[chosen]

        def loss_of(params: PyTree) -> Array:
            denoise = LearnedDenoiser(apply, params, hyper.data_scale)
            return denoising_loss(denoise, key_loss, batch, noise, hyper.data_scale)

        loss, gradient = jax.value_and_grad(loss_of)(state.params)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        average, averaging_state = averaging.update(params, state.averaging)
        return TrainingState(params, average, optimizer_state, averaging_state), TrainingInfo(loss)

    return Method(init, step)


class TrainedDenoiser(NamedTuple):
    """What ``train_denoiser`` returns.

    Attributes:
        denoise: The denoiser, with averaged parameters.
        losses: Of every step's batch.
    """

    denoise: LearnedDenoiser
    losses: Float[Array, " steps"]


def train_denoiser(
    key: Array,
    network: nnx.Module,
    rows: Float[Array, "rows *shape"] | Float[np.ndarray, "rows *shape"],
    *,
    num_steps: int,
    batch_size: int = 128,
    learning_rate: Scalar = 1e-3,
    noise: NoiseSampler | None = None,
    data_scale: Scalar | None = None,
    decay: float = 0.999,
) -> TrainedDenoiser:
    """Train a network by Adam with a learning rate that falls to 0 like a cosine.

    Args:
        key: Of batches, levels and noise.
        network: ``(scaled signal, noise label) -> output`` of one signal, from Flax NNX.
        rows: Clean signals.
        num_steps: Steps of Adam.
        batch_size: Rows per step.
        learning_rate: At the start.
        noise: Levels and weights; ``edm.log_normal_noise()`` by default.
        data_scale: The standard deviation of the data's entries around 0; measured by default.
        decay: Of the average of parameters.

    Raises:
        TypeError: ``key`` is not a typed key, or a size is not an integer.
        ValueError: There is no row, NaN or infinity, or a size is less than 1.

    Example:
        >>> rows = jnp.array([[-1.0], [1.0]])
        >>> from jaxlab.diffusion.networks import DenseNetwork
        >>> network = DenseNetwork(1, width=16, num_blocks=1, rngs=nnx.Rngs(jax.random.key(0)))
        >>> trained = train_denoiser(
        ...     jax.random.key(1), network, rows, num_steps=300, learning_rate=0.03, decay=0.9
        ... )
        >>> bool(abs(trained.denoise(jnp.array([0.5]), 0.5)[0] - jnp.tanh(2.0)) < 0.1)
        True
    """
    check_count("num_steps", num_steps)
    apply, params = split_network(network)
    rows = jnp.asarray(rows)
    scale = jnp.sqrt(jnp.mean(jnp.square(rows))) if data_scale is None else data_scale
    schedule = optax.cosine_decay_schedule(learning_rate, num_steps)  # pyright: ignore
    method = denoiser_training(
        apply,
        optax.adam(schedule),
        batch_size=batch_size,
        noise=noise or log_normal_noise(),
        decay=decay,
    )

    @jax.jit
    def train(problem: Training, hyper: TrainingHyper, key: Array) -> tuple[PyTree, Array]:
        done = run(method, problem, hyper, key, num_steps=num_steps)
        return done.state.average, done.trace.loss

    hyper = TrainingHyper(jnp.asarray(scale, rows.dtype))
    method.init(Training(params, rows), hyper, key)  # speaks of bad rows before anything compiles
    average, losses = train(Training(params, rows), hyper, key)
    return TrainedDenoiser(LearnedDenoiser(apply, average, hyper.data_scale), losses)

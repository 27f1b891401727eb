r"""Adaptation per task: is one controller for all devices enough, and what do K steps each bring?

Tasks :math:`\xi` share a start :math:`\theta_0`, and each takes its own gradient steps

.. math::
    \theta_{k+1} = \theta_k - \eta \nabla L_\xi(\theta_k), \qquad
    G_K = E_\xi[L_\xi(\theta_0) - L_\xi(\theta_K)] .

The adaptation gain :math:`G_K` saturates as :math:`A (1 - e^{-\beta K})`, with :math:`A` in
proportion to the variance of the tasks and :math:`\beta` to :math:`\eta\mu`. It also contains what
a single controller would gain by the same steps on the mean loss, where :math:`\theta_0` was not
optimal: ``gain_parts`` tells both apart. How many steps pay is told by ``meta_gain_budget``.

Source: arXiv:2601.18973, "When Does Adaptation Win? Scaling Laws for Meta-Learning in Quantum
Control", and the first author's code; the bounds, their constants and the split of the gain are
derived here and attacked in ``proofs_checks/meta_gain.py``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from jaxlab.core.checks import check_count, check_finite, check_key, check_value
from jaxlab.core.iterate import run
from jaxlab.core.types import Method, Scalar
from jaxlab.optim.meta_gain_bounds import gain_lower_bound, pl_gain_bound, quadratic_gain

__all__ = [
    "AdaptationHyper",
    "AdaptationInfo",
    "AdaptationState",
    "Adapted",
    "Fomaml",
    "FomamlHyper",
    "FomamlState",
    "GainParts",
    "TaskFamily",
    "adapt",
    "adaptation",
    "adaptation_curves",
    "adaptation_gain",
    "adaptation_hyper",
    "fomaml",
    "fomaml_hyper",
    "gain_lower_bound",
    "gain_parts",
    "mean_loss",
    "pl_gain_bound",
    "quadratic_gain",
    "robust_init",
    "task_variance",
]

LossFn = Callable[[Any, Any], Any]
"""``(params, task) -> loss``, differentiable in the first argument."""


class TaskFamily(NamedTuple):
    """Tasks and where all of them start.

    Attributes:
        start: Parameters, any pytree of floats.
        tasks: A pytree whose leaves have a leading axis of tasks.
    """

    start: PyTree
    tasks: PyTree


class AdaptationHyper(NamedTuple):
    """Hyper-parameters. Attributes: step_size: ``eta``, positive."""

    step_size: Float[Array, ""]


class AdaptationState(NamedTuple):
    """Every task's parameters. Attributes: params: leaves ``[tasks, ...]``."""

    params: PyTree


class AdaptationInfo(NamedTuple):
    """Diagnostics. Attributes: loss: the mean over tasks before the step."""

    loss: Float[Array, ""]


def adaptation_hyper(step_size: Scalar) -> AdaptationHyper:
    """Hyper-parameters of ``adaptation``.

    Raises:
        ValueError: ``step_size`` is not positive.

    Example:
        >>> float(adaptation_hyper(0.5).step_size)
        0.5
    """
    check_value("step_size", step_size, lambda s: s > 0, "positive")
    return AdaptationHyper(jnp.asarray(step_size, dtype=float))


def adaptation(loss_fn: LossFn) -> Method:
    """Gradient descent of every task on its own loss, from a common start.

    The problem is a ``TaskFamily``, the hyper-parameters an ``AdaptationHyper``, the state an
    ``AdaptationState`` and the info an ``AdaptationInfo``.

    Args:
        loss_fn: ``(params, task) -> loss``.

    Raises:
        ValueError: ``init`` raises it for tasks without a common leading axis.

    Example:
        >>> def loss(x, target):
        ...     return jnp.sum((x - target) ** 2) / 2
        >>> family = TaskFamily(jnp.zeros(()), jnp.array([1.0, -2.0]))
        >>> method, hyper = adaptation(loss), adaptation_hyper(0.5)
        >>> done = run(method, family, hyper, jax.random.key(0), num_steps=2)
        >>> done.state.params.tolist(), done.trace.loss.tolist()
        ([0.75, -1.5], [1.25, 0.3125])
    """

    def init(problem: TaskFamily, hyper: AdaptationHyper, key: Array) -> AdaptationState:
        del hyper
        check_key("key", key)
        count = _count_tasks(problem.tasks)
        return AdaptationState(
            jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *jnp.shape(x))), problem.start)
        )

    def step(
        problem: TaskFamily, hyper: AdaptationHyper, state: AdaptationState, key: Array
    ) -> tuple[AdaptationState, AdaptationInfo]:
        del key
        losses, gradients = jax.vmap(jax.value_and_grad(loss_fn))(state.params, problem.tasks)
        params = _descend(state.params, gradients, hyper.step_size)
        return AdaptationState(params), AdaptationInfo(losses.mean())

    return Method(init, step)


class Adapted(NamedTuple):
    """One adapted task.

    Attributes:
        params: After the last step.
        losses: Before every step and after the last.
    """

    params: PyTree
    losses: Float[Array, " steps_and_one"]


def adapt(
    loss_fn: LossFn, start: PyTree, task: Any, step_size: Scalar, *, num_steps: int
) -> Adapted:
    """Gradient descent of one task; ``vmap`` it over starts, tasks or step sizes.

    Args:
        loss_fn: ``(params, task) -> loss``.
        start: Parameters.
        task: Of one task.
        step_size: ``eta``, positive.
        num_steps: ``K``, at least 0.

    Raises:
        TypeError: ``num_steps`` is not an integer.
        ValueError: It is negative, or ``step_size`` is not positive.

    Example:
        >>> found = adapt(lambda x, t: (x - t) ** 2 / 2, jnp.array(0.0), 4.0, 0.5, num_steps=2)
        >>> float(found.params), found.losses.tolist()
        (3.0, [8.0, 2.0, 0.5])
    """
    check_count("num_steps", num_steps, least=0)
    check_value("step_size", step_size, lambda s: s > 0, "positive")

    def step(params: Any, moves: Array) -> tuple[Any, Array]:
        loss, gradient = jax.value_and_grad(loss_fn)(params, task)
        after = _descend(params, gradient, step_size)
        return jax.tree.map(lambda a, b: jnp.where(moves, a, b), after, params), loss

    # The last evaluation moves nothing: in the loop it is not compiled a second time.
    start = jax.tree.map(jnp.asarray, start)
    return Adapted(*jax.lax.scan(step, start, jnp.arange(num_steps + 1) < num_steps))


def adaptation_curves(
    loss_fn: LossFn, start: PyTree, tasks: PyTree, step_size: Scalar, *, num_steps: int
) -> Float[Array, "tasks steps_and_one"]:
    """``L_xi(theta_k)`` of every task, for k = 0, ..., K.

    Raises:
        ValueError: As ``adapt``; or the tasks have no common leading axis.

    Example:
        >>> loss = lambda x, t: (x - t) ** 2 / 2
        >>> tasks = jnp.array([2.0, 4.0])
        >>> adaptation_curves(loss, jnp.array(0.0), tasks, 0.5, num_steps=1).tolist()
        [[2.0, 0.5], [8.0, 2.0]]
    """
    _count_tasks(tasks)
    return jax.vmap(
        lambda task: adapt(loss_fn, start, task, step_size, num_steps=num_steps).losses
    )(tasks)


def adaptation_gain(
    curves: Float[Array, "tasks steps_and_one"],
) -> Float[Array, " steps_and_one"]:
    """``G_k``, the mean over tasks of ``L(theta_0) - L(theta_k)``.

    Example:
        >>> adaptation_gain(jnp.array([[2.0, 0.5], [8.0, 2.0]])).tolist()
        [0.0, 3.75]
    """
    # The mean of differences, which are far smaller than the losses.
    return jnp.mean(curves[:, :1] - curves, axis=0)


def task_variance(tasks: PyTree) -> Float[Array, ""]:
    """``E |gamma - E gamma|^2`` over all leaves.

    Example:
        >>> float(task_variance({"mass": jnp.array([1.0, 3.0]), "rate": jnp.array([0.0, 4.0])}))
        5.0
    """
    _count_tasks(tasks)
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(tasks)]
    spreads = [jnp.mean((x - x.mean(axis=0, keepdims=True)) ** 2, axis=0).sum() for x in leaves]
    return sum(spreads[1:], start=spreads[0])


class GainParts(NamedTuple):
    """What adaptation gains, and what of it one controller for all would gain as well.

    Attributes:
        total: ``G_k``.
        shared: The fall of the mean loss by as many steps on the mean loss: the start's own fault.
        individual: ``total - shared``; it is what the differences of the tasks are worth.
        central: ``G_k`` of the mean task alone, where there is no variance.
    """

    total: Float[Array, " steps_and_one"]
    shared: Float[Array, " steps_and_one"]
    individual: Float[Array, " steps_and_one"]
    central: Float[Array, " steps_and_one"]


def gain_parts(
    loss_fn: LossFn, start: PyTree, tasks: PyTree, step_size: Scalar, *, num_steps: int
) -> GainParts:
    """Split the gain into a shared and an individual part [derived].

    A gain at zero variance comes from a start that was not optimal, and says nothing of
    heterogeneity.

    Raises:
        ValueError: As ``adapt``; or the tasks have no common leading axis.

    Example:
        >>> loss = lambda x, t: (x - t) ** 2 / 2
        >>> parts = gain_parts(loss, jnp.array(3.0), jnp.array([1.0, -1.0]), 0.5, num_steps=1)
        >>> parts.total.tolist(), parts.shared.tolist(), parts.individual.tolist()
        ([0.0, 3.75], [0.0, 3.375], [0.0, 0.375])
    """
    count = _count_tasks(tasks)
    # The mean task is one more of them, which saves a program.
    middle = jax.tree.map(
        lambda leaf: jnp.concatenate([leaf, jnp.mean(leaf, axis=0, keepdims=True)]), tasks
    )
    curves = adaptation_curves(loss_fn, start, middle, step_size, num_steps=num_steps)

    def mean(params: PyTree, tasks: PyTree) -> Array:
        return mean_loss(loss_fn, params, tasks)

    common = adapt(mean, start, tasks, step_size, num_steps=num_steps).losses
    total, shared = adaptation_gain(curves[:count]), common[0] - common
    return GainParts(total, shared, total - shared, adaptation_gain(curves[count:]))


def mean_loss(loss_fn: LossFn, params: PyTree, tasks: PyTree) -> Float[Array, ""]:
    """The loss of one controller, averaged over tasks.

    Example:
        >>> float(mean_loss(lambda x, t: (x - t) ** 2, jnp.array(0.0), jnp.array([1.0, 3.0])))
        5.0
    """
    return jax.vmap(loss_fn, in_axes=(None, 0))(params, tasks).mean()


class FomamlHyper(NamedTuple):
    """Hyper-parameters. Attributes: inner_step_size: of the inner steps, positive."""

    inner_step_size: Float[Array, ""]


class FomamlState(NamedTuple):
    """The state.

    Attributes:
        params: The initialisation so far.
        optimizer: The outer optimizer's state.
    """

    params: PyTree
    optimizer: PyTree


class Fomaml(NamedTuple):
    """Diagnostics.

    Attributes:
        loss: The mean over the batch after the inner steps.
        gradient_norm: Of the outer gradient.
    """

    loss: Float[Array, ""]
    gradient_norm: Float[Array, ""]


def fomaml_hyper(inner_step_size: Scalar) -> FomamlHyper:
    """Hyper-parameters of ``fomaml``.

    Raises:
        ValueError: ``inner_step_size`` is not positive.
    """
    check_value("inner_step_size", inner_step_size, lambda s: s > 0, "positive")
    return FomamlHyper(jnp.asarray(inner_step_size, dtype=float))


def fomaml(
    loss_fn: LossFn,
    optimizer: optax.GradientTransformation,
    *,
    num_inner_steps: int,
    batch_size: int | None = None,
) -> Method:
    """First-order MAML: an initialisation from which few gradient steps go far.

    The outer gradient is the mean of the tasks' gradients *after* their inner steps (Finn, Abbeel
    and Levine 2017, arXiv:1703.03400). Without inner steps it trains the robust controller, the
    minimiser of the mean loss. The problem is a ``TaskFamily``, the hyper-parameters a
    ``FomamlHyper``, the state a ``FomamlState`` and the info a ``Fomaml``.

    Args:
        loss_fn: ``(params, task) -> loss``.
        optimizer: Of optax, for the outer steps.
        num_inner_steps: At least 0.
        batch_size: Tasks per outer step, drawn without replacement; all by default.

    Raises:
        TypeError: A count is not an integer.
        ValueError: A count is out of range. ``step`` raises it for a batch larger than the family.

    Example:
        >>> loss = lambda x, t: (x - t) ** 2 / 2
        >>> method = fomaml(loss, optax.sgd(1.0), num_inner_steps=1)
        >>> family = TaskFamily(jnp.array(0.0), jnp.array([1.0, 3.0]))
        >>> done = run(method, family, fomaml_hyper(0.5), jax.random.key(0), num_steps=1)
        >>> float(done.state.params)
        1.0
    """
    check_count("num_inner_steps", num_inner_steps, least=0)
    if batch_size is not None:
        check_count("batch_size", batch_size)

    def init(problem: TaskFamily, hyper: FomamlHyper, key: Array) -> FomamlState:
        del hyper
        check_key("key", key)
        check_finite("problem.start", problem.start)
        _count_tasks(problem.tasks)
        start = jax.tree.map(jnp.asarray, problem.start)
        return FomamlState(start, optimizer.init(start))

    def step(
        problem: TaskFamily, hyper: FomamlHyper, state: FomamlState, key: Array
    ) -> tuple[FomamlState, Fomaml]:
        tasks = problem.tasks
        count = _count_tasks(tasks)
        if batch_size is not None:
            if batch_size > count:
                raise ValueError(
                    f"batch_size must be at most the number of tasks, {count}, got {batch_size}"
                )
            chosen = jax.random.choice(key, count, (batch_size,), replace=False)
            tasks = jax.tree.map(lambda leaf: leaf[chosen], tasks)

        def after_inner(task: Any) -> tuple[Array, PyTree]:
            params = state.params
            if num_inner_steps:
                size = hyper.inner_step_size
                params = adapt(loss_fn, params, task, size, num_steps=num_inner_steps).params
            return jax.value_and_grad(loss_fn)(params, task)

        losses, gradients = jax.vmap(after_inner)(tasks)
        gradient = jax.tree.map(lambda leaf: leaf.mean(axis=0), gradients)
        updates, inner = optimizer.update(gradient, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        return FomamlState(params, inner), Fomaml(losses.mean(), optax.tree.norm(gradient))

    return Method(init, step)


def robust_init(
    loss_fn: LossFn,
    start: PyTree,
    tasks: PyTree,
    optimizer: optax.GradientTransformation,
    *,
    num_steps: int,
) -> PyTree:
    """One controller for all tasks: ``num_steps`` of ``optimizer`` on the mean loss.

    Raises:
        TypeError: ``num_steps`` is not an integer.
        ValueError: It is negative, or the tasks have no common leading axis.

    Example:
        >>> loss = lambda x, t: (x - t) ** 2 / 2
        >>> tasks = jnp.array([1.0, 3.0])
        >>> float(robust_init(loss, jnp.array(0.0), tasks, optax.sgd(1.0), num_steps=1))
        2.0
    """
    method = fomaml(loss_fn, optimizer, num_inner_steps=0)
    # Nothing is drawn: without inner steps and batches the key and the step size are not used.
    done = run(
        method, TaskFamily(start, tasks), fomaml_hyper(1.0), jax.random.key(0), num_steps=num_steps
    )
    return done.state.params


def _descend(params: PyTree, gradient: PyTree, step_size: Scalar) -> PyTree:
    return jax.tree.map(lambda x, g: x - (step_size * g).astype(x.dtype), params, gradient)


def _count_tasks(tasks: PyTree) -> int:
    counts = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(tasks)}
    if len(counts) != 1 or counts == {()} or counts == {(0,)}:
        shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(tasks)]
        raise ValueError(f"tasks must have one leading axis of tasks on all leaves, got {shapes}")
    ((count,),) = counts
    return count

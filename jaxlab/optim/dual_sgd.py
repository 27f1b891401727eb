r"""Accelerated dual ascent with multi-step primal SGD: exact answers from rare communication.

How few exchanges reach a given accuracy when every agent may take many cheap local steps between
them? Agents :math:`m` hold :math:`f_m`, each :math:`\mu`-strongly convex and :math:`L`-smooth. With
stacked parameters :math:`X`, gossip matrix :math:`W`, and dual variables :math:`Z` whose agents sum
to zero, one round is

.. math::
    R &= (P + q Q)/(1 + q)                                  && \text{extrapolate} \\
    x_m &\leftarrow x_m - \eta (g_m(x_m) + r_m),\ K \text{ times}   && \text{local, warm-started} \\
    G &= (I - W) X                                          && \text{one exchange} \\
    P^+ &= R + \tau G, \qquad Q^+ = (1 - q) Q + q R + (\tau/q) G ,

which is ``inexact_agd`` on the dual function: :math:`G` is its gradient up to the error of the
local solves. The dual's condition number is :math:`\kappa\chi`, with :math:`\kappa = L/\mu` and the
graph's :math:`\chi`.

* :math:`q = 1/\sqrt{\kappa\chi}`, :math:`\tau = \mu/\lambda_{\max}` ("accelerated") takes
  :math:`O(\sqrt{\kappa\chi}\log 1/\epsilon)` rounds, but only if the local work
  :math:`K\eta\mu` is at least about 1.5; with much less it diverges.
* :math:`q = 1`, :math:`\tau = 1/(\lambda_{\max} s_K)`, :math:`s_K = (1 - (1-\eta\mu)^K)/\mu`
  ("plain") is stable for every :math:`K \ge 1`.

Source: ICML 2026, "Accelerated Dual Method for Distributed Optimization: An Inexact-Gradient View
of Local Updates"; predecessor arXiv:2407.02689 (GA-MSGD). The idea, the warm start and the dual
confined to zero-sum arrays are the source's; the exact form, the rates and the plain step for any K
are reconstructed and are attacked in ``proofs_checks/dual_sgd.py``.
"""

import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

from jaxlab.core.checks import check_count, check_key, check_leading_axis, check_value, is_concrete
from jaxlab.core.types import Method, Scalar
from jaxlab.optim.inexact_agd import AGDHyper, accelerated_update, check_curvature, query_point
from jaxlab.optim.local_solvers import LocalSolver, sgd_solver
from jaxlab.problems.consensus import (
    Consensus,
    ConsensusInfo,
    broadcast_to_agents,
    consensus_error,
)
from jaxlab.problems.graphs import GossipSpectrum

__all__ = [
    "SUFFICIENT_LOCAL_WORK",
    "DualConstants",
    "DualSGDHyper",
    "DualSGDState",
    "InsufficientLocalWorkWarning",
    "communication_bound",
    "dual_constants",
    "dual_energy",
    "dual_sgd",
    "dual_sgd_hyper",
    "dual_value",
    "local_work",
    "rounds_to_accuracy",
    "sufficient_local_steps",
]

SUFFICIENT_LOCAL_WORK = 1.5
"""The local work ``K * step_size * mu`` from which on acceleration is safe [numerical]."""


class InsufficientLocalWorkWarning(UserWarning):
    """Acceleration was asked for where the local steps are too few for it."""


class DualSGDHyper(NamedTuple):
    """Hyper-parameters; ``dual_sgd_hyper`` computes them from the problem's constants.

    Attributes:
        dual_step_size: ``tau``, the step along the disagreement.
        rate: ``q`` in (0, 1]; 1 switches acceleration off.
        step_size: ``eta`` of the local steps; the exact solver does not use it.
    """

    dual_step_size: Float[Array, ""]
    rate: Float[Array, ""]
    step_size: Float[Array, ""]


class DualSGDState(NamedTuple):
    """The dual pair and the primal; all leaves are ``[agents, ...]``.

    Attributes:
        p: The dual iterate; its agents sum to zero.
        q: The slow dual sequence; its agents sum to zero.
        params: Every agent's parameters, the answer.
    """

    p: PyTree
    q: PyTree
    params: PyTree


class DualConstants(NamedTuple):
    """The dual function's constants in the metric of the graph.

    Attributes:
        strong_convexity: ``mu_D = lambda_min / L``.
        smoothness: ``L_D = lambda_max / mu``.
        condition: ``kappa * chi``.
        rate: ``q = 1 / sqrt(kappa * chi)``.
    """

    strong_convexity: Float[Array, ""]
    smoothness: Float[Array, ""]
    condition: Float[Array, ""]
    rate: Float[Array, ""]


def dual_sgd(
    *, num_local_steps: int | None = None, local_solver: LocalSolver | None = None
) -> Method:
    """Dual ascent with local solves, accelerated where ``hyper.rate < 1``.

    The problem is a ``Consensus``, the hyper-parameters a ``DualSGDHyper``, the state a
    ``DualSGDState`` and the info a ``ConsensusInfo``.

    Args:
        num_local_steps: ``K >= 1`` local SGD steps between exchanges.
        local_solver: Instead of ``num_local_steps``: ``exact_solver(...)`` or one's own.

    Raises:
        TypeError: ``num_local_steps`` is not an integer.
        ValueError: It is less than 1, or not exactly one argument was given. The method's ``init``
            raises it for a problem without agents' data.

    Example:
        >>> from jaxlab.core import run
        >>> from jaxlab.problems import consensus, graphs
        >>> def loss(x, target):
        ...     return 0.5 * jnp.sum((x - target) ** 2)
        >>> gossip = graphs.metropolis_weights(graphs.ring_graph(4))
        >>> problem = consensus.make_consensus(
        ...     consensus.full_gradient(loss), jnp.arange(4.0), jnp.zeros(()), gossip
        ... )
        >>> hyper = dual_sgd_hyper(1.0, 1.0, graphs.gossip_spectrum(gossip), num_local_steps=2)
        >>> done = run(dual_sgd(num_local_steps=2), problem, hyper, jax.random.key(0), num_steps=40)
        >>> done.state.params.round(4).tolist()
        [1.5, 1.5, 1.5, 1.5]
    """
    if (num_local_steps is None) == (local_solver is None):
        raise ValueError(
            "give exactly one of num_local_steps and local_solver, got "
            f"num_local_steps={num_local_steps!r} and local_solver={local_solver!r}"
        )
    solver = local_solver or sgd_solver(num_local_steps)  # pyright: ignore[reportArgumentType]

    def init(problem: Consensus, hyper: DualSGDHyper, key: Array) -> DualSGDState:
        del hyper
        check_key("key", key)
        check_leading_axis("problem.data", problem.data, problem.num_agents, "agents")
        params = broadcast_to_agents(problem, problem.start)
        zero = jax.tree.map(jnp.zeros_like, params)
        return DualSGDState(zero, zero, params)

    def step(
        problem: Consensus, hyper: DualSGDHyper, state: DualSGDState, key: Array
    ) -> tuple[DualSGDState, ConsensusInfo]:
        shift = query_point(state.p, state.q, hyper.rate)
        params = solver.solve(problem, hyper.step_size, shift, state.params, key)
        disagreement = problem.mixing.disagreement(params)
        # Ascent: the dual's descent direction is minus the disagreement.
        ascent = AGDHyper(-hyper.dual_step_size, hyper.rate)
        p, q = accelerated_update(state.q, shift, disagreement, ascent)
        error = consensus_error(problem.mixing, params)
        info = ConsensusInfo(
            error,
            jnp.full_like(error, solver.num_gradients),
            jnp.full_like(error, problem.mixing.num_exchanges),
        )
        return DualSGDState(p, q, params), info

    return Method(init, step)


def dual_constants(
    strong_convexity: Scalar, smoothness: Scalar, spectrum: GossipSpectrum
) -> DualConstants:
    """The constants of the dual function in the graph's metric [derived].

    Args:
        strong_convexity: ``mu > 0`` of every single ``f_m``.
        smoothness: ``L >= mu`` of every single ``f_m``.
        spectrum: Of the mixing that is really applied.

    Raises:
        ValueError: ``mu`` is not positive, or ``L < mu``.
    """
    check_curvature(strong_convexity, smoothness)
    low = spectrum.smallest / smoothness
    high = spectrum.largest / strong_convexity
    return DualConstants(low, high, high / low, jnp.sqrt(low / high))


def local_work(
    num_local_steps: int, step_size: Scalar, strong_convexity: Scalar
) -> Float[Array, ""]:
    """``K * step_size * mu``, which decides whether acceleration is safe."""
    return jnp.asarray(num_local_steps * step_size * strong_convexity, dtype=float)


def dual_sgd_hyper(
    strong_convexity: Scalar,
    smoothness: Scalar,
    spectrum: GossipSpectrum,
    *,
    num_local_steps: int,
    step_size: Scalar | None = None,
    mode: Literal["auto", "accelerated", "plain"] = "auto",
) -> DualSGDHyper:
    """The step sizes that the theory gives for ``num_local_steps``.

    Args:
        strong_convexity: ``mu > 0`` of every single ``f_m``; over-estimating it breaks the method.
        smoothness: ``L >= mu`` of every single ``f_m``.
        spectrum: Of the mixing that is really applied (``graphs.gossip_spectrum``,
            ``mixing.chebyshev_spectrum``).
        num_local_steps: ``K`` of the local solver.
        step_size: ``eta`` of the local steps; ``1/L`` by default, which suits full gradients. For
            stochastic ones take 0.05 to 0.25 of that.
        mode: ``"accelerated"``, ``"plain"``, or ``"auto"``: accelerated if the local work
            ``K * step_size * mu`` is at least 1.5, else plain.

    Raises:
        ValueError: A constant is out of range, or the mode is unknown.

    Warns:
        InsufficientLocalWorkWarning: ``mode="accelerated"`` where the local work is too small.

    Example:
        >>> from jaxlab.problems import graphs
        >>> spectrum = graphs.gossip_spectrum(graphs.metropolis_weights(graphs.complete_graph(4)))
        >>> many = dual_sgd_hyper(1.0, 25.0, spectrum, num_local_steps=50)
        >>> few = dual_sgd_hyper(1.0, 25.0, spectrum, num_local_steps=5)
        >>> round(float(many.rate), 6), float(few.rate)
        (0.2, 1.0)
    """
    check_count("num_local_steps", num_local_steps)
    constants = dual_constants(strong_convexity, smoothness, spectrum)
    eta = 1 / jnp.asarray(smoothness, dtype=float) if step_size is None else step_size
    check_value("step_size", eta, lambda s: (s > 0) & (s < 2 / smoothness), "in (0, 2/smoothness)")
    work = local_work(num_local_steps, eta, strong_convexity)
    _check_mode(mode, ("auto", "accelerated", "plain"))
    if mode == "accelerated" and is_concrete(work) and not _is_sufficient(work):
        warnings.warn(
            f"local work K * step_size * mu = {num_local_steps} * {float(eta):.3g} * "
            f"{float(strong_convexity):.3g} = {float(work):.3g} is below "
            f"{SUFFICIENT_LOCAL_WORK}: acceleration can diverge; take more local steps, "
            "mode='plain', or mode='auto'",
            InsufficientLocalWorkWarning,
            stacklevel=2,
        )
    accelerate = _is_sufficient(work) if mode == "auto" else mode == "accelerated"
    # s_K: the dual curvature that K local steps see; expm1 keeps it exact for tiny step sizes.
    seen = -jnp.expm1(num_local_steps * jnp.log1p(-eta * strong_convexity)) / strong_convexity
    return DualSGDHyper(
        jnp.where(accelerate, 1 / constants.smoothness, 1 / (spectrum.largest * seen)),
        jnp.where(accelerate, constants.rate, jnp.ones_like(constants.rate)),
        jnp.asarray(eta, dtype=constants.rate.dtype),
    )


def _check_mode(mode: str, known: tuple[str, ...]) -> None:
    if mode not in known:
        raise ValueError(f"mode must be one of {', '.join(known)}, got {mode!r}")


def _is_sufficient(work: Array) -> Bool[Array, ""]:
    # K = 1.5 kappa steps of size 1/L are enough, though their product may round to just below.
    return work >= SUFFICIENT_LOCAL_WORK * (1 - 8 * jnp.finfo(work.dtype).eps)


def sufficient_local_steps(
    strong_convexity: Scalar, smoothness: Scalar, spectrum: GossipSpectrum
) -> Float[Array, ""]:
    r"""Full-gradient steps of size ``1/L`` that provably suffice for acceleration [derived].

    :math:`K \ge \log(13 (\kappa\chi)^{3/4}) / -\log(1 - 1/\kappa)`. Then the energy decays at least
    as :math:`(1 - q/4)^t`.
    """
    condition = dual_constants(strong_convexity, smoothness, spectrum).condition
    contraction = -jnp.log1p(-strong_convexity / jnp.asarray(smoothness, dtype=float))
    return jnp.ceil(jnp.log(13 * condition**0.75) / contraction)


def rounds_to_accuracy(
    constants: DualConstants,
    accuracy: Scalar,
    *,
    mode: Literal["accelerated", "plain"] = "accelerated",
) -> Float[Array, ""]:
    r"""Rounds that shrink the energy by ``accuracy`` under exact local solves.

    The asymptotic factors per round are exactly :math:`1 - 1/\sqrt{\kappa\chi}` and
    :math:`1 - 1/(\kappa\chi)` for parameters; energies decay with their squares [derived].

    Raises:
        ValueError: The mode is unknown.
    """
    _check_mode(mode, ("accelerated", "plain"))
    factor = constants.rate if mode == "accelerated" else 1 / constants.condition
    return jnp.ceil(jnp.log(accuracy) / (2 * jnp.log1p(-factor)))


def communication_bound(constants: DualConstants, accuracy: Scalar) -> Float[Array, ""]:
    r"""The order of rounds that any method needs: :math:`\sqrt{\kappa\chi}\,\log(1/\epsilon)`.

    Scaman et al. 2017 (arXiv:1702.08704), Theorem 1, up to a universal constant.
    """
    return jnp.sqrt(constants.condition) * jnp.log(1 / jnp.asarray(accuracy, dtype=float))


def dual_value(
    loss_fn: Callable[[Any, Any], Any], problem: Consensus, shift: PyTree, minimizers: PyTree
) -> Float[Array, ""]:
    """The negative dual ``D(Z) = -min_X [F(X) + <Z, X>]`` at ``shift`` and its minimisers."""
    losses = jax.vmap(loss_fn)(minimizers, problem.data)
    return -(losses.sum() + optax.tree.vdot(shift, minimizers))


def dual_energy(
    gap: Array,
    q: Float[Array, "agents dim"],
    optimum: Float[Array, "agents dim"],
    gossip: Float[Array, "agents agents"],
    constants: DualConstants,
) -> Float[Array, ""]:
    r"""``V = D(P) - D* + (mu_D/2) <Q - Z*, A^+ (Q - Z*)>``, the energy of the method.

    Args:
        gap: ``D(P) - D*``.
        q: The slow dual sequence.
        optimum: The dual optimum ``Z*``, minus the private gradients at the solution.
        gossip: ``W``, with ``A = I - W``.
        constants: From ``dual_constants``.
    """
    laplacian = jnp.eye(len(gossip), dtype=gossip.dtype) - gossip
    # A acts on zero-sum arrays only, where adding the averaging projector makes it invertible.
    invertible = laplacian + 1 / len(gossip)
    offset = q - optimum
    distance = jnp.sum(offset * jnp.linalg.solve(invertible, offset))
    return gap + constants.strong_convexity / 2 * distance

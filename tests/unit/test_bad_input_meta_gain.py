"""Wrong input to adaptation, budgets and simulators is refused by the argument's name."""

import jax
import jax.numpy as jnp
import optax
import pytest

from jaxlab.core import run
from jaxlab.core.checks import checked
from jaxlab.optim import meta_gain, meta_gain_budget
from jaxlab.optim.meta_gain import TaskFamily
from jaxlab.quantum import bloch, lindblad, pulses

pytestmark = pytest.mark.usefixtures("without_type_checks")

TASKS = jnp.arange(3.0)
EYE = jnp.eye(2)
QUBIT = bloch.Qubit(*jnp.zeros(3))


def loss(x, task):
    return jnp.sum((x - task) ** 2)


def curves(step_size=0.1, tasks=TASKS, num_steps=1):
    return meta_gain.adaptation_curves(loss, jnp.zeros(2), tasks, step_size, num_steps=num_steps)


def probe(**changes):
    options = {"num_probe": 3, "shortfall": 0.1, "cost": 0.1} | changes
    return meta_gain_budget.probe_budget(loss, jnp.zeros(2), TASKS, 0.1, **options)


def propagate(controls=EYE, duration=1.0, order=4):
    start = jnp.array(bloch.ZERO)
    return pulses.propagate_pwc(
        bloch.bloch_generator, controls, QUBIT, start, duration, order=order
    )


def too_large_batch():
    method = meta_gain.fomaml(loss, optax.sgd(0.1), num_inner_steps=0, batch_size=4)
    family = TaskFamily(jnp.zeros(2), TASKS)
    return run(method, family, meta_gain.fomaml_hyper(0.1), jax.random.key(0), num_steps=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: curves(step_size=0.0), r"step_size must be positive, got 0\.0"),
        (lambda: curves(num_steps=-1), "num_steps must be at least 0, got -1"),
        (lambda: curves(tasks=jnp.array(1.0)), r"tasks must have one leading axis of tasks"),
        (lambda: curves(tasks=(TASKS, jnp.ones(2))), r"on all leaves, got \[\(3,\), \(2,\)\]"),
        (lambda: curves(tasks=jnp.zeros(0)), "tasks must have one leading axis"),
        (lambda: meta_gain.task_variance(jnp.array(1.0)), "tasks must have one leading axis"),
        (lambda: meta_gain.adaptation_hyper(-1.0), r"step_size must be positive, got -1\.0"),
        (lambda: meta_gain.fomaml_hyper(0.0), "inner_step_size must be positive"),
        (
            lambda: meta_gain.fomaml(loss, optax.sgd(0.1), num_inner_steps=-1),
            "num_inner_steps must be at least 0, got -1",
        ),
        (
            lambda: meta_gain.fomaml(loss, optax.sgd(0.1), num_inner_steps=1, batch_size=0),
            "batch_size must be at least 1, got 0",
        ),
        (too_large_batch, "batch_size must be at most the number of tasks, 3, got 4"),
        (lambda: meta_gain.pl_gain_bound(0.0, 0.1, 1.0, 1), "pl_constant must be positive"),
        (
            lambda: meta_gain.pl_gain_bound(2.0, 0.6, 1.0, 1),
            r"step_size must be in \(0, 1/pl_constant\], got 0\.6",
        ),
        (lambda: meta_gain.pl_gain_bound(1.0, 0.1, 1.0, -1), "num_steps must be at least 0"),
        (lambda: meta_gain.gain_lower_bound(1.0, 0.1, -1.0, 1.0, 1), "separation must be at least"),
        (lambda: meta_gain.gain_lower_bound(1.0, 0.1, 1.0, -1.0, 1), "variance must be at least 0"),
        (
            lambda: meta_gain.quadratic_gain(EYE, jnp.eye(3), 0.1, 1),
            r"square and of one shape, got \(2, 2\) and \(3, 3\)",
        ),
        (lambda: meta_gain.quadratic_gain(EYE, EYE, 0.1, -1), "num_steps must be at least 0"),
        (lambda: meta_gain_budget.fit_saturation(jnp.zeros(2)), "gains must be one row of at le"),
        (lambda: meta_gain_budget.probe_fit(jnp.zeros((3, 2))), r"got shape \(3, 2\)"),
        (lambda: meta_gain_budget.steps_to_share(0.1, 0.0), r"shortfall must be in \(0, 1\)"),
        (lambda: meta_gain_budget.steps_for_cost(1.0, 0.1, 0.0), "cost must be positive"),
        (lambda: probe(num_probe=1), "num_probe must be at least 2, got 1"),
        (lambda: probe(cost=-1.0), "cost must be positive"),
        (lambda: probe(shortfall=1.0), r"shortfall must be in \(0, 1\), got 1\.0"),
        (lambda: pulses.bounded_controls(EYE, 0.0), "largest must be positive"),
        (lambda: propagate(controls=jnp.ones(2)), r"controls must have shape \[segments, controls"),
        (lambda: propagate(controls=jnp.ones((0, 2))), r"got \(0, 2\)"),
        (lambda: propagate(duration=0.0), "duration must be positive"),
        (lambda: propagate(order=0), "order must be at least 1, got 0"),
        (lambda: bloch.qubit_of_times(1.0, 10.0, 21.0), r"t2 must be in \(0, 2 t1\], got 21\.0"),
        (lambda: bloch.qubit_of_times(0.0, 10.0, 1.0), "gate_time must be positive"),
        (lambda: bloch.qubit_of_times(1.0, -1.0, 1.0), "t1 must be positive"),
        (
            lambda: lindblad.lindblad_superoperator(EYE, jnp.ones((1, 3, 3))),
            r"jumps must have shape \[jumps, dim, dim\]",
        ),
        (lambda: lindblad.dissipator(jnp.ones((2, 3))), "jump must be a square matrix"),
        (lambda: lindblad.hamiltonian_part(jnp.ones(2)), "hamiltonian must be a square matrix"),
        (
            lambda: lindblad.average_gate_infidelity(jnp.eye(9) + 0j, EYE),
            r"propagator must have shape \(4, 4\) for a target of 2 x 2, got \(9, 9\)",
        ),
    ],
)  # fmt: skip
def test_bad_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: curves(num_steps=1.0), "num_steps must be a Python integer"),
        (lambda: probe(num_probe=2.0), "num_probe must be a Python integer"),
        (
            lambda: meta_gain.adaptation(loss).init(TaskFamily(EYE, TASKS), None, 0),
            "key must be a typed PRNG key",
        ),
        (
            lambda: meta_gain.fomaml(loss, optax.sgd(0.1), num_inner_steps=1).init(
                TaskFamily(EYE, TASKS), None, 0
            ),
            "key must be a typed PRNG key",
        ),
    ],
)
def test_bad_types(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_a_start_that_is_not_finite():
    method = meta_gain.fomaml(loss, optax.sgd(0.1), num_inner_steps=0)
    with pytest.raises(ValueError, match=r"problem\.start must be finite, got 1 NaN"):
        method.init(TaskFamily(jnp.array([jnp.nan]), TASKS), None, jax.random.key(0))


def test_values_known_only_at_run_time():
    with pytest.raises(Exception, match="cost must be positive"):
        checked(jax.jit(lambda c: meta_gain_budget.steps_for_cost(1.0, 0.1, c)))(jnp.array(-1.0))

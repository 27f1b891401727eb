import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core import Method, Status, run, run_until
from jaxlab.core.iterate import init_key, step_key
from jaxlab.core.types import status_name

EPS = np.finfo(float).eps
KEY = jax.random.key(11)


def walk():
    """x -> hyper * x + noise, with the noise as info: random, so that keys matter."""

    def step(problem, hyper, state, key):
        noise = jax.random.normal(key, state.shape)
        state = hyper * state + problem * noise
        return state, {"noise": noise.sum(), "total": state.sum()}

    return Method(lambda problem, hyper, key: jax.random.normal(key, (3,)), step)


def power(*, nan_at=None):
    """x -> hyper * x, with NaN instead at one step."""

    def step(problem, hyper, state, key):
        del key
        value, count = state
        value = hyper * value
        if nan_at is not None:
            value = jnp.where(count == nan_at, jnp.nan, value)
        return (value, count + 1), value

    return Method(lambda problem, hyper, key: (problem, jnp.zeros((), jnp.int32)), step)


def test_prefix_of_a_long_run_equals_a_short_run():
    long = run(walk(), jnp.asarray(1.0), 0.9, KEY, num_steps=9)
    short = run(walk(), jnp.asarray(1.0), 0.9, KEY, num_steps=4)
    np.testing.assert_array_equal(long.trace["total"][:4], short.trace["total"])


def test_a_run_continues_from_its_state():
    whole = run(walk(), jnp.asarray(1.0), 0.9, KEY, num_steps=9)
    start = run(walk(), jnp.asarray(1.0), 0.9, KEY, num_steps=4)
    rest = run(walk(), jnp.asarray(1.0), 0.9, KEY, num_steps=5, state=start.state, first_step=4)
    np.testing.assert_array_equal(rest.state, whole.state)


def test_noise_differs_between_steps_and_keys():
    noise = run(walk(), jnp.asarray(1.0), 0.9, KEY, num_steps=9).trace["noise"]
    other = run(walk(), jnp.asarray(1.0), 0.9, jax.random.key(12), num_steps=9).trace["noise"]
    assert len(set(np.concatenate([noise, other]).tolist())) == 18


def test_the_start_shares_no_key_with_a_step():
    keys = [KEY, init_key(KEY), *(step_key(KEY, step) for step in range(3))]
    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == 5


def test_every_records_the_last_step_of_each_group():
    full = run(walk(), jnp.asarray(1.0), 0.9, KEY, num_steps=12)
    sparse = run(walk(), jnp.asarray(1.0), 0.9, KEY, num_steps=12, every=4)
    np.testing.assert_array_equal(sparse.trace["total"], full.trace["total"][3::4])
    np.testing.assert_array_equal(sparse.state, full.state)


def test_the_answer_is_the_closed_form():
    done = run(power(), jnp.asarray(3.0), 0.5, KEY, num_steps=6)
    assert float(done.state[0]) == 3.0 / 64
    assert int(done.num_steps) == 6
    assert (int(done.status), int(done.first_bad_step)) == (Status.OK, -1)


@pytest.mark.parametrize(
    ("method", "start", "threshold", "status", "bad"),
    [
        (power(), np.nan, None, Status.INPUT_NONFINITE, 0),
        (power(nan_at=3), 1.0, None, Status.NONFINITE, 3),
        (power(), 1.0, 5.0, Status.DIVERGED, 2),
        (power(), 1.0, 8.0, Status.DIVERGED, 3),
        (power(nan_at=4), 1.0, 5.0, Status.NONFINITE, 2),
        (power(), 1.0, 1e9, Status.OK, -1),
    ],
)
@pytest.mark.parametrize("every", [1, 4])
def test_status_says_what_went_bad_and_when(method, start, threshold, status, bad, every):
    """Powers of two exceed 5 at 2**3, that is, at step 2, and 8 a step later."""
    done = run(
        method, jnp.asarray(start), 2.0, KEY, num_steps=8, every=every,
        divergence_threshold=threshold,
    )  # fmt: skip
    assert (status_name(done.status), int(done.first_bad_step)) == (status.name, bad)


def test_nan_in_a_large_state_is_seen():
    """The maximum of an array of 4096 entries drops NaN on CPU."""
    start = jnp.zeros(5000).at[17].set(jnp.nan)
    done = run(power(), start, 1.0, KEY, num_steps=2, divergence_threshold=10.0)
    assert int(done.status) == Status.INPUT_NONFINITE
    late = run(power(nan_at=1), jnp.zeros(5000), 1.0, KEY, num_steps=3, divergence_threshold=10.0)
    assert (int(late.status), int(late.first_bad_step)) == (Status.NONFINITE, 1)


def test_no_steps_leave_the_first_state():
    done = run(power(), jnp.asarray(2.0), 0.5, KEY, num_steps=0)
    assert (float(done.state[0]), int(done.status)) == (2.0, Status.OK)
    assert done.trace.shape == (0,)


def test_run_until_under_vmap_keeps_each_lane_where_it_stopped():
    starts = jnp.array([8.0, 64.0, jnp.nan, 1e300, 1e6])

    def one(start, factor):
        return run_until(
            power(), start, factor, KEY,
            stop_fn=lambda state, info: state[0] <= 1.0, max_steps=10, divergence_threshold=1e305,
        )  # fmt: skip

    done = jax.vmap(one)(starts, jnp.array([0.5, 0.5, 0.5, 1e3, 0.5]))
    names = [status_name(status) for status in done.status]
    assert names == ["OK", "OK", "INPUT_NONFINITE", "DIVERGED", "MAX_STEPS"]
    assert done.num_steps.tolist() == [3, 6, 0, 2, 10]
    assert done.first_bad_step.tolist() == [-1, -1, 0, 1, -1]
    assert done.state[0][:2].tolist() == [1.0, 1.0]


def test_run_until_tells_overflow_from_divergence():
    done = run_until(
        power(), jnp.asarray(1e300), 1e10, KEY, stop_fn=lambda state, info: False, max_steps=9
    )
    assert (int(done.status), int(done.first_bad_step)) == (Status.NONFINITE, 0)


def test_run_until_takes_the_steps_of_run():
    until = run_until(
        walk(), jnp.asarray(1.0), 0.9, KEY, stop_fn=lambda state, info: False, max_steps=6
    )
    np.testing.assert_array_equal(
        until.state, run(walk(), jnp.asarray(1.0), 0.9, KEY, num_steps=6).state
    )


def test_reverse_mode_equals_the_closed_form_and_finite_differences():
    def total(hyper):
        done = run(walk(), jnp.asarray(0.1), hyper, KEY, num_steps=5)
        return done.state.sum()

    gradient = float(jax.grad(total)(0.9))
    width = EPS ** (1 / 3)
    numeric = float(total(0.9 + width) - total(0.9 - width)) / (2 * width)
    # Central differences err by the third derivative times width**2, about 60 here.
    assert abs(gradient - numeric) <= 100 * width**2 * max(1.0, abs(gradient))

    def cube(hyper):
        return run(power(), jnp.asarray(2.0), hyper, KEY, num_steps=3).state[0]

    assert abs(float(jax.grad(cube)(0.7)) - 2 * 3 * 0.7**2) <= 8 * EPS


def test_what_nobody_reads_costs_nothing():
    """Under jit the program that returns the state alone counts no more than a bare scan."""

    def bare(start, hyper):
        return jax.lax.scan(lambda x, _: (hyper * x, None), start, length=50)[0]

    def ours(start, hyper):
        return run(power(), start, hyper, KEY, num_steps=50).state[0]

    def cost(function):
        compiled = jax.jit(function).lower(jnp.ones(256), 0.5).compile()
        return compiled.cost_analysis()

    # The counter of steps is the one extra operation per round.
    assert cost(ours)["flops"] <= cost(bare)["flops"] + 8


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_steps": -1}, ValueError, "num_steps must be at least 0, got -1"),
        ({"num_steps": 2.0}, TypeError, "num_steps must be a Python integer, got 2.0"),
        ({"num_steps": True}, TypeError, "num_steps must be a Python integer, got True"),
        ({"num_steps": 4, "every": 3}, ValueError, "every must divide num_steps = 4, got 3"),
        ({"num_steps": 4, "every": 0}, ValueError, "every must be at least 1, got 0"),
    ],
)
def test_bad_counts_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        run(power(), jnp.asarray(1.0), 0.5, KEY, **options)


def test_run_until_needs_a_step():
    with pytest.raises(ValueError, match="max_steps must be at least 1, got 0"):
        run_until(
            power(), jnp.asarray(1.0), 0.5, KEY, stop_fn=lambda state, info: True, max_steps=0
        )

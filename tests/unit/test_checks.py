import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

from jaxlab.core import checked
from jaxlab.core.checks import check_count, check_finite, check_key, check_leading_axis, check_value


def positive(x):
    return x > 0


def test_values_name_argument_expectation_and_value():
    with pytest.raises(ValueError, match=r"^step_size must be positive, got -1\.0$"):
        check_value("step_size", -1.0, positive, "positive")


@pytest.mark.parametrize("value", [np.nan, np.array([1.0, np.nan]), jnp.array([1.0, -2.0])])
def test_nan_and_single_entries_fail(value):
    with pytest.raises(ValueError, match="rate must be positive"):
        check_value("rate", value, positive, "positive")


def test_large_arrays_are_described_not_printed():
    with pytest.raises(ValueError, match=r"got an array of shape \(99,\) and dtype float64$"):
        check_value("weights", np.zeros(99), positive, "positive")


def test_good_values_pass():
    check_value("weights", np.ones(3), positive, "positive")
    check_count("num_steps", np.int64(3))
    check_finite("data", {"ids": jnp.arange(3), "x": jnp.ones(2)})
    check_key("key", jax.random.key(0))
    check_leading_axis("data", {"x": jnp.ones((4, 2))}, 4, "agents")


def test_traced_values_are_caught_by_checked_and_only_by_it():
    def double(x):
        check_value("x", x, positive, "positive")
        return 2 * x

    assert float(jax.jit(double)(-1.0)) == -2.0
    assert float(checked(jax.jit(double))(3.0)) == 6.0
    with pytest.raises(checkify.JaxRuntimeError, match=r"x must be positive, got -1\.0"):
        checked(jax.jit(double))(-1.0)


def test_checked_catches_under_vmap_and_scan():
    def total(x):
        def body(total, value):
            check_value("value", value, positive, "positive")
            return total + value**2, None

        return jax.lax.scan(body, 0.0, x)[0]

    batched = checked(jax.vmap(total))
    assert batched(jnp.ones((2, 3))).tolist() == [3.0, 3.0]
    with pytest.raises(checkify.JaxRuntimeError, match="value must be positive"):
        batched(jnp.array([[1.0, 1.0, 1.0], [1.0, -1.0, 1.0]]))


def test_checked_catches_under_grad():
    def square(x):
        check_value("x", x, positive, "positive")
        return x**2

    assert float(checked(jax.grad(square))(3.0)) == 6.0
    with pytest.raises(checkify.JaxRuntimeError, match="x must be positive"):
        checked(jax.grad(square))(-3.0)


def test_checked_reports_nan_that_arises_inside():
    with pytest.raises(checkify.JaxRuntimeError, match="nan"):
        checked(jnp.log)(-1.0)


def test_checked_finds_traced_nonfinite_data():
    def total(x):
        check_finite("x", {"rows": x})
        return x.sum()

    with pytest.raises(checkify.JaxRuntimeError, match=r"x\['rows'\] must be finite"):
        checked(jax.jit(total))(jnp.array([1.0, jnp.inf]))


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (0, "got 0"),
        (jax.random.PRNGKey(0), r"got an array of shape \(2,\).*raw key of jax.random.PRNGKey\?"),
        (jax.random.split(jax.random.key(0), 3), r"got \(3,\) keys; vmap over the keys instead"),
        (None, "got None"),
    ],
)
def test_wrong_keys_are_refused(key, message):
    with pytest.raises(TypeError, match="key must be a typed PRNG key.*" + message):
        check_key("key", key)


def test_nonfinite_entries_are_located():
    tree = {"a": jnp.ones(2), "b": jnp.array([[0.0, 1.0], [jnp.inf, jnp.nan]])}
    message = r"data\['b'\] must be finite, got 2 .* of 4, the first at index \(1, 0\)"
    with pytest.raises(ValueError, match=message):
        check_finite("data", tree)


def test_the_leading_axis_is_named():
    with pytest.raises(ValueError, match=r"data\[1\] must have a leading axis of 3 agents, got"):
        check_leading_axis("data", (jnp.ones(3), jnp.ones(())), 3, "agents")

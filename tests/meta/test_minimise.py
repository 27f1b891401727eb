"""Counterexamples that a person can read."""

import dataclasses

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from jaxlab.claims import Claim, Effort, at_most, at_most_in_ratio, climb
from jaxlab.claims.evaluate import Evaluator, precise
from jaxlab.claims.minimise import minimise
from jaxlab.claims.picture import draw_counterexample, margin_slice
from jaxlab.claims.smaller import smaller_counterexample
from jaxlab.claims.verdict import Candidate

KEY = jax.random.key(0)


def spread(x):
    """``max - min <= 0.97 sqrt(2) |x - mean|``; 1 in place of 0.97 is true and tight."""
    bound = 0.97 * jnp.sqrt(2.0) * jnp.sqrt(jnp.sum((x - x.mean()) ** 2))
    return at_most_in_ratio(x.max() - x.min(), bound)


def vector(dim):
    return numpyro.sample("x", dist.Normal(0.0, 1.0).expand([dim]))


FALSE = Claim(
    name="toy/spread",
    statement="max - min <= 0.97 sqrt(2) |x - mean|",
    source="made for the test",
    families={"normal": vector},
    conclusion=spread,
    assumptions=lambda x: jnp.isfinite(x).all(),
    sizes={"dim": st.integers(2, 8)},
    typical={"dim": 6},
    expected="refuted",
)
FOUND = np.array([0.0123, 1.2345, -0.0231, 0.0072, -1.1987, 0.0019])


def candidate(instance, **changes):
    settings = {"family": "normal", "sizes": {"dim": 6}, "instance": instance, "key": KEY}
    return Candidate(**{**settings, "margin": -0.03, **changes})


def violation(x):
    spread = x.max() - x.min()
    return np.log(spread / (0.97 * np.sqrt(2) * np.linalg.norm(x - x.mean())))


def test_numbers_that_do_not_matter_become_zero_and_the_others_round():
    with precise():
        small = minimise(FALSE, Evaluator(FALSE), candidate(FOUND), {}, seconds=60.0)
    assert np.count_nonzero(small) == 2
    assert all(len(f"{abs(value):g}".replace(".", "").strip("0")) <= 3 for value in small)
    assert violation(small) >= violation(FOUND) / 2 > 0


def test_assumptions_limit_what_becomes_zero():
    bounded = dataclasses.replace(FALSE, assumptions=lambda x: jnp.min(jnp.abs(x)) - 1e-3)
    with precise():
        small = minimise(bounded, Evaluator(bounded), candidate(FOUND), {}, seconds=60.0)
    assert np.abs(small).min() >= 1e-3
    assert violation(small) > 0


def test_integers_and_keys_are_left_alone():
    def conclusion(instance):
        x, count, key = instance
        return x.sum() * count + 0 * jax.random.uniform(key)

    mixed = dataclasses.replace(
        FALSE, conclusion=conclusion, assumptions=lambda i: i[1], sizes={}, typical={}
    )
    instance = (np.array([-1.2345, -0.001]), np.array(3), jax.random.key(7))
    with precise():
        x, count, key = minimise(
            mixed, Evaluator(mixed), candidate(instance, sizes={}), {}, seconds=60.0
        )
    assert x.tolist() == [-1.0, 0.0]
    assert int(count) == 3
    assert (jax.random.key_data(key) == jax.random.key_data(jax.random.key(7))).all()


def test_an_instance_of_integers_is_refuted_without_a_picture(tmp_path):
    whole = dataclasses.replace(
        FALSE,
        families={"poisson": lambda: numpyro.sample("count", dist.Poisson(3.0))},
        conclusion=lambda count: 1.5 - count,
        assumptions=lambda count: count,
        sizes={},
        typical={},
    )
    report = climb(whole, effort=Effort(examples=5, samples=20, restarts=4), folder=tmp_path)
    assert report.ok
    assert list(tmp_path.glob("*.npz"))
    assert not list(tmp_path.glob("*.png"))


def test_hypothesis_lowers_the_sizes():
    # Half of the numbers at each end give the variance 1/4; with an odd number it is less:
    # 2/9 in three dimensions, below 0.23. So four is the smallest dimension that violates it.
    popoviciu = Claim(
        name="toy/popoviciu",
        statement="0 <= x <= 1  =>  var x <= 0.23, but for two numbers",
        source="made for the test",
        families={"uniform": lambda dim: numpyro.sample("x", dist.Uniform(0, 1).expand([dim]))},
        conclusion=lambda x: at_most(x.var(), 0.23 if len(x) > 2 else 0.25),
        assumptions=lambda x: jnp.minimum(x.min(), 1 - x.max()),
        sizes={"dim": st.integers(2, 6)},
        typical={"dim": 6},
        expected="refuted",
    )
    found = candidate(np.array([0.0, 0, 0, 1, 1, 1]), sizes={"dim": 6}, margin=-0.02)
    with precise():
        smaller = smaller_counterexample(popoviciu, found, {}, 0, seconds=300.0)
    assert smaller is not None
    assert smaller.sizes == {"dim": 4}
    assert np.var(np.asarray(smaller.instance)) > 0.23


def test_the_picture_shows_the_margin():
    names, axes, centre, margin, slack = margin_slice(FALSE, candidate(FOUND), {})
    places = [int(name.split("[")[1].rstrip("]")) for name in names]
    assert centre == [FOUND[i] for i in places]
    assert (slack == 0).all()
    for row, column in ((0, 0), (40, 40), (80, 13)):
        x = FOUND.copy()
        x[places[0]], x[places[1]] = axes[0][row], axes[1][column]
        assert margin[row, column] == pytest.approx(-violation(x))
    assert margin[40, 40] == pytest.approx(-violation(FOUND))


def test_a_picture_is_written_whole_or_told(tmp_path):
    file = draw_counterexample(FALSE, candidate(FOUND), {}, tmp_path / "x.png")
    assert file.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="figure must be a file that can be written"):
        draw_counterexample(FALSE, candidate(FOUND), {}, tmp_path / "none" / "x.png")
    whole = dataclasses.replace(FALSE, conclusion=lambda n: 1.0 * n, assumptions=lambda n: n)
    with pytest.raises(ValueError, match="must hold a real number"):
        draw_counterexample(whole, candidate(np.array(3)), {}, tmp_path / "y.png")

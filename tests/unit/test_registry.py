import importlib

import hypothesis
import jax.numpy as jnp
import pytest

from jaxlab.core import find_paper, papers
from jaxlab.core.trees import all_finite, largest_magnitude, tree_combine


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.slug)
def test_rows_point_at_code(paper):
    module = importlib.import_module(paper.module)
    for name in paper.methods:
        assert name in module.__all__
        assert callable(getattr(module, name))


def test_slugs_are_unique():
    slugs = [paper.slug for paper in papers()]
    assert len(slugs) == len(set(slugs)) > 0


def test_a_misspelt_slug_gets_a_hint():
    with pytest.raises(ValueError, match=r"got 'dual_sdg'; did you mean 'dual_sgd'\?"):
        find_paper("dual_sdg")
    with pytest.raises(ValueError, match=r"slug must be one of dual_sgd.*, got 'zzz'$"):
        find_paper("zzz")


def test_finite_means_floating_point_numbers_only():
    assert bool(all_finite({"n": jnp.arange(3), "x": jnp.ones(2), "name": "text"}))
    assert not bool(all_finite((jnp.ones(2), jnp.array([1.0, -jnp.inf]))))
    assert bool(all_finite(()))


def test_magnitude_is_the_largest_of_all_leaves():
    assert float(largest_magnitude((jnp.array([1.0, -5.0]), jnp.array(3.0), jnp.zeros(0)))) == 5.0
    assert float(largest_magnitude((jnp.arange(9),))) == 0.0


def test_combination_keeps_the_first_dtype():
    total = tree_combine((2.0, -1.0), jnp.ones(2, jnp.float32), jnp.full(2, 0.5))
    assert (total.dtype, total.tolist()) == (jnp.float32, [1.5, 1.5])


def test_the_hypothesis_profile_is_active():
    assert hypothesis.settings().deadline is None
    assert hypothesis.settings.get_profile("jaxlab").deadline is None
    assert hypothesis.settings.default is hypothesis.settings.get_profile("jaxlab")

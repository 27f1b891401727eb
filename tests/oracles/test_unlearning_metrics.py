"""Metrics of unlearning against scikit-learn and enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import sklearn.metrics

from jaxlab.optim import unlearning_metrics as metrics
from jaxlab.optim.oeu import Labelled

GENERATOR = np.random.default_rng(0)
attack = jax.jit(metrics.membership_attack)


@pytest.mark.parametrize("shift", [-1.0, 0.0, 2.0])
def test_attack_equals_scikit_learn_and_all_thresholds(shift):
    """Scores with ties, and members that are below, equal or above."""
    members = (GENERATOR.normal(size=60) + shift).round(1)
    others = GENERATOR.normal(size=40).round(1)
    found = attack(jnp.asarray(members), jnp.asarray(others))
    truth = np.repeat([1, 0], [60, 40])
    scores = np.concatenate([members, others])
    np.testing.assert_allclose(found.auc, sklearn.metrics.roc_auc_score(truth, scores), rtol=1e-12)
    best = max(
        sklearn.metrics.balanced_accuracy_score(truth, scores >= cut) for cut in [*scores, np.inf]
    )
    np.testing.assert_allclose(found.accuracy, best, rtol=1e-12)
    at_threshold = sklearn.metrics.balanced_accuracy_score(truth, scores >= float(found.threshold))
    np.testing.assert_allclose(at_threshold, best, rtol=1e-12)


def test_report_equals_numpy():
    w = GENERATOR.normal(size=(5, 3))
    sizes = {"forget": 7, "retain": 30, "test": 20}
    data = {
        name: (GENERATOR.normal(size=(n, 5)), GENERATOR.integers(0, 3, n))
        for name, n in sizes.items()
    }
    splits = metrics.UnlearnSplits(
        *(Labelled(jnp.asarray(x), jnp.asarray(y)) for x, y in data.values())
    )
    report = jax.jit(lambda w: metrics.unlearning_report(lambda w, x: x @ w, w, splits))(
        jnp.asarray(w)
    )
    p = {name: scipy.special.softmax(x @ w, axis=1) for name, (x, _) in data.items()}
    for field, name in zip(report[:3], data, strict=True):
        np.testing.assert_allclose(
            field, sklearn.metrics.accuracy_score(data[name][1], p[name].argmax(axis=1))
        )
    top = {name: values.max(axis=1) for name, values in p.items()}
    threshold = attack(jnp.asarray(top["retain"]), jnp.asarray(top["test"])).threshold
    np.testing.assert_allclose(report.mia, (top["forget"] < float(threshold)).mean())
    truth = np.repeat([1, 0], [7, 20])
    scores = np.concatenate([top["forget"], top["test"]])
    np.testing.assert_allclose(report.auc, sklearn.metrics.roc_auc_score(truth, scores))
    height = -(p["forget"] * np.log(p["forget"])).sum(axis=1).mean()
    np.testing.assert_allclose(report.forget_entropy, height)
    other = metrics.UnlearnReport(*jnp.asarray(GENERATOR.uniform(size=6)))
    expected = np.mean([abs(float(a) - float(b)) for a, b in zip(report[:4], other, strict=False)])
    np.testing.assert_allclose(metrics.unlearning_gap(report, other), expected)


def test_a_model_of_nan_knows_nothing():
    rows = Labelled(jnp.ones((4, 2)), jnp.zeros(4, int))
    splits = metrics.UnlearnSplits(rows, rows, rows)
    report = metrics.unlearning_report(lambda w, x: x @ w, jnp.full((2, 3), jnp.nan), splits)
    assert report[:3] == (0.0, 0.0, 0.0)
    assert np.isnan(report.auc)
    assert np.isnan(report.forget_entropy)

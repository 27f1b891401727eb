import hashlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from sklearn.linear_model import LogisticRegression, Ridge

from jaxlab.data import tabular
from jaxlab.problems import regression


def prepared(table, num_agents, *, by="feature"):
    targets = table.targets
    if len(np.unique(targets)) > 2:
        targets = tabular.standardize(targets)
    return tabular.split_sorted(
        tabular.prepare_features(table.features), targets, num_agents, by=by
    )


def flat(shards):
    """All rows with the weight that each has in the mean over agents; padding dropped."""
    features = np.asarray(shards.features).reshape(-1, shards.features.shape[-1])
    weights = np.asarray(shards.weights).reshape(-1) / len(shards.weights)
    keep = weights > 0
    return features[keep], np.asarray(shards.targets).reshape(-1)[keep], weights[keep]


@pytest.mark.parametrize(
    ("table", "by"), [(tabular.breast_cancer, "feature"), (tabular.digits, "target")]
)
def test_logistic_optimum_is_that_of_scikit_learn(table, by):
    with jax.enable_x64(True):
        shards = regression.with_condition(
            prepared(table(), 7, by=by), regression.logistic_smoothness, 50.0
        )
        ours = regression.centralized_optimum(regression.logistic_loss, shards)
        features, targets, weights = flat(shards)
        theirs = LogisticRegression(
            C=1 / float(shards.ridge[0]), fit_intercept=False, solver="newton-cholesky", tol=1e-12
        ).fit(features, targets, sample_weight=weights)
        np.testing.assert_allclose(ours, theirs.coef_[0], atol=1e-7)


def test_least_squares_optimum_is_that_of_scikit_learn():
    with jax.enable_x64(True):
        shards = regression.with_condition(
            prepared(tabular.diabetes(), 9), regression.least_squares_smoothness, 50.0
        )
        ours = regression.centralized_optimum(regression.least_squares_loss, shards)
        features, targets, weights = flat(shards)
        theirs = Ridge(alpha=float(shards.ridge[0]), fit_intercept=False, solver="cholesky").fit(
            features, targets, sample_weight=weights
        )
        np.testing.assert_allclose(ours, theirs.coef_, atol=1e-10)


@pytest.mark.parametrize(
    ("loss", "smoothness", "tight"),
    [
        (regression.logistic_loss, regression.logistic_smoothness, False),
        (regression.least_squares_loss, regression.least_squares_smoothness, True),
    ],
)
def test_constants_are_the_extreme_hessian_eigenvalues(loss, smoothness, tight):
    with jax.enable_x64(True):
        shards = regression.with_condition(prepared(tabular.breast_cancer(), 5), smoothness, 100.0)
        constants = smoothness(shards)
        # The logistic bound is reached at the origin, where every curvature is 1/4.
        for scale in (0.0, 3.0):
            params = scale * jax.random.normal(jax.random.key(0), (31,))
            hessians = jax.vmap(jax.hessian(loss), in_axes=(None, 0))(params, shards)
            eigenvalues = np.linalg.eigvalsh(hessians)
            assert (eigenvalues[:, -1] <= constants * (1 + 1e-10)).all()
            assert (eigenvalues[:, 0] >= shards.ridge * (1 - 1e-8)).all()
            if tight or scale == 0.0:
                np.testing.assert_allclose(eigenvalues[:, -1], constants, rtol=1e-10)
        assert float(constants.max() / shards.ridge[0]) == pytest.approx(100.0)


@pytest.mark.parametrize("loss", [regression.logistic_loss, regression.least_squares_loss])
def test_gradients_agree_with_finite_differences(loss):
    with jax.enable_x64(True):
        shard = jax.tree.map(lambda leaf: leaf[0], prepared(tabular.breast_cancer(), 5))
        params = jax.random.normal(jax.random.key(1), (31,))
        check_grads(lambda x: loss(jnp.asarray(x), shard), (params,), order=2)


def test_every_row_is_dealt_once_and_shares_are_sorted():
    table = tabular.breast_cancer()
    features = tabular.prepare_features(table.features)
    with jax.enable_x64(True):
        shards = tabular.split_sorted(features, table.targets, 10)
        rows, _, weights = flat(shards)
    assert shards.features.shape == (10, 57, 31)
    assert len(weights) == 569
    np.testing.assert_allclose(np.asarray(shards.weights).sum(axis=1), 1.0)
    np.testing.assert_array_equal(rows[:, 0], np.sort(features[:, 0]))
    assert sorted(map(tuple, rows)) == sorted(map(tuple, features))


def test_splitting_by_target_gives_agents_of_one_class():
    shards = prepared(tabular.digits(), 10, by="target")
    classes = [
        np.unique(t[w > 0]).size for t, w in zip(shards.targets, shards.weights, strict=True)
    ]
    assert sum(count > 1 for count in classes) <= 1


def test_minibatches_are_unbiased_and_never_draw_padding():
    with jax.enable_x64(True):
        shard = regression.Shards(
            jnp.array([[1.0], [2.0], [jnp.nan], [4.0]]),
            jnp.array([1.0, -1.0, 1.0, 2.0]),
            jnp.array([0.25, 0.5, 0.0, 0.25]),
            jnp.array(0.1),
        )
        params = jnp.array([0.7])
        gradient = regression.weighted_minibatch_gradient(
            regression.least_squares_loss, batch_size=4
        )
        keys = jax.random.split(jax.random.key(3), 20_000)
        draws = jax.jit(jax.vmap(lambda key: gradient(params, shard, key)))(keys)[:, 0]
        whole = shard._replace(features=jnp.array([[1.0], [2.0], [0.0], [4.0]]))
        exact = jax.grad(regression.least_squares_loss)(params, whole)[0]
        assert jnp.isfinite(draws).all()
        standard_error = draws.std() / np.sqrt(draws.size)
        assert abs(draws.mean() - exact) < 5 * standard_error


def test_preparation_of_features():
    features = tabular.prepare_features(tabular.digits().features)
    assert features.shape == (1797, 62)  # 3 of the 64 pixels are always blank
    np.testing.assert_allclose(features[:, -1], 1 / np.sqrt(62))
    np.testing.assert_allclose(features[:, :-1].std(axis=0), 1 / np.sqrt(62))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_agents": 4}, "num_agents must be at most the number of rows 3, got 4"),
        ({"num_agents": 0}, "num_agents must be at least 1, got 0"),
        (
            {"features": np.array([[1.0], [np.nan], [2.0]])},
            r"features must be finite.*index \(1, 0\)",
        ),
        ({"targets": np.array([1.0, np.inf, 2.0])}, "targets must be finite"),
        ({"targets": np.ones(2)}, "targets must have 3 rows like features, got 2"),
    ],
)
def test_unusable_tables_are_refused(change, message):
    arguments = {"features": np.ones((3, 1)), "targets": np.ones(3), "num_agents": 2} | change
    with pytest.raises(ValueError, match=message):
        tabular.split_sorted(**arguments)


def test_condition_must_exceed_one():
    shards = prepared(tabular.diabetes(), 2)
    with pytest.raises(ValueError, match=r"condition must be above 1, got 1\.0"):
        regression.with_condition(shards, regression.least_squares_smoothness, 1.0)


def test_a_changed_table_is_noticed(monkeypatch):
    monkeypatch.setitem(tabular._CHECKSUMS, "digits", hashlib.sha256(b"").hexdigest())
    with pytest.raises(ValueError, match="the digits table must have the sha256 e3b0c4"):
        tabular.digits()


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"pip install 'jaxlab\[experiments\]'"):
        tabular.breast_cancer()

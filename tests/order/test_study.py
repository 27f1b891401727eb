"""Margins, scores and orders are what training with SGD gives."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxlab.core.trees import tree_combine
from jaxlab.models.losses import TokenBatch, next_token_loss
from jaxlab.order import store as stores
from jaxlab.order.check import chosen_pairs, measured_gaps, rehearsed
from jaxlab.order.model import ByteReader, batch_of, gradients, make_learner
from jaxlab.order.report import orders_of
from jaxlab.order.sources import Drawn, draw, open_source, read_documents
from jaxlab.order.store import Store, inner_products, open_store
from jaxlab.order.study import batch_at, study, target_batches

from .conftest import SEQUENCES, TOKENS

COUNT = 4


@pytest.fixture(scope="module")
def learner(tiny):
    lm, params = tiny
    return make_learner(lm, jax.tree.map(lambda x: x.astype(jnp.float64), params), ByteReader(), 1)


@pytest.fixture(scope="module")
def files(tmp_path_factory, texts):
    """Sources 2 to 5, the last one short, and what is drawn of them and of the target."""
    folder = tmp_path_factory.mktemp("texts")
    found = []
    for name in list(texts)[-COUNT:]:
        (folder / name).write_text(texts[name])
        found.append(open_source(name, folder / name, "text"))
    (folder / "target").write_text(texts["0.txt"])
    goal = open_source("target", folder / "target", "text")

    def drawn(source, sequences):
        return draw(source, read_documents(source, "text"), ByteReader(), seed=0,
                    sequences=sequences, tokens=TOKENS)  # fmt: skip

    drawn_sources = {source.digest: drawn(source, SEQUENCES) for source in found}
    # Not a multiple of a batch: the last one is padded.
    return found, drawn_sources, target_batches(drawn(goal, 10), SEQUENCES)


def new_store(folder):
    (folder / "checkpoints").mkdir()
    return Store(folder / "checkpoints")


@pytest.fixture(scope="module")
def found(files, learner, tmp_path_factory):
    return study(*files, learner, new_store(tmp_path_factory.mktemp("store")))


def batches_of(files, learner):
    sources, drawn, _ = files
    return lambda i: batch_of(learner, *drawn[sources[i].digest])


def whole(parts):
    """All sequences of several batches as one, for the losses of the whole model."""
    tokens, mask = (
        np.concatenate([leaf.reshape(-1, TOKENS) for leaf in leaves])
        for leaves in zip(*parts, strict=True)
    )
    return TokenBatch(jnp.asarray(tokens), jnp.asarray(mask))


ORDERS = np.array(list(itertools.permutations(range(COUNT))))
PAIRS = np.array(list(itertools.permutations(range(COUNT), 2)))


@pytest.fixture(scope="module")
def train(files, tiny):
    """``step size -> target losses`` of orders and of pairs, by SGD on the whole model's loss."""
    lm, params = tiny
    params = jax.tree.map(lambda x: x.astype(jnp.float64), params)
    sources, drawn, target = files
    loss = next_token_loss(lm)
    batches = [whole([drawn[source.digest]]) for source in sources]
    batches = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)
    mask = {name: jax.tree.map(jnp.zeros_like, value) for name, value in params.items()}
    mask["layers"] = jax.tree.map(lambda x: jnp.zeros_like(x).at[-1].set(1), params["layers"])
    # One program for both: -1 is no step.
    short = np.concatenate([PAIRS, np.full((len(PAIRS), COUNT - 2), -1)], axis=1)
    orders = jnp.asarray(np.concatenate([ORDERS, short]))

    @jax.jit
    def run(step_size):
        def end(order):
            def step(now, i):
                grad = jax.grad(loss)(now, jax.tree.map(lambda leaf: leaf[i], batches))
                kept = jax.tree.map(jnp.multiply, mask, grad)
                return tree_combine((1, jnp.where(i < 0, 0, -step_size)), now, kept), None

            return loss(jax.lax.scan(step, params, order)[0], whole(target))

        return jax.lax.map(end, orders)

    def split(step_size):
        return np.split(np.asarray(run(step_size)), [len(ORDERS)])

    return split


SIZES = (1e-3, 5e-4, 2.5e-4)


def extrapolated(values):
    """What values over the squared step tend to, but for their third order."""
    return (values[0] - 6 * values[1] + 8 * values[2]) / 3


def test_every_order_costs_what_sgd_loses_by_it(found, train):
    losses = [train(size)[0] / size**2 for size in SIZES]
    measured = extrapolated([part - part[0] for part in losses])
    before = np.triu(np.ones((COUNT, COUNT)), 1)
    costs = np.array([(found.edges[np.ix_(order, order)] * before).sum() / 2 for order in ORDERS])
    np.testing.assert_allclose(measured, costs - costs[0], rtol=0, atol=1e-5 * np.ptp(costs))
    # The order of the scores is the best one here, and its reverse the worst.
    assert ORDERS[measured.argmin()].tolist() == found.order.tolist()
    assert ORDERS[measured.argmax()].tolist() == found.order[::-1].tolist()
    assert found.costs[0] - found.costs[1] == pytest.approx(-np.ptp(measured), rel=1e-5)


def test_margins_have_the_sign_and_size_of_two_steps_in_both_orders(found, files, train, learner):
    def gap(losses, i, j):
        one, other = (losses[(pair == PAIRS).all(axis=1)].item() for pair in ((i, j), (j, i)))
        return one - other

    runs = [train(size)[1] / size**2 for size in SIZES]
    for i, j in itertools.combinations(range(COUNT), 2):
        measured = extrapolated([gap(losses, i, j) for losses in runs])
        assert measured == pytest.approx(found.edges[i, j], rel=1e-4)
    target = files[2]
    gaps = measured_gaps(learner, found.edges, batches_of(files, learner), target, SIZES[2])
    assert [gap[:2] for gap in gaps] == chosen_pairs(found.edges)
    for first, second, predicted, measured in gaps:
        assert measured == pytest.approx(gap(runs[2], first, second) * SIZES[2] ** 2, rel=1e-6)
        assert measured == pytest.approx(predicted, rel=0.05)
        assert predicted < 0


def test_rehearsals_end_where_training_does(found, files, train, learner):
    target = files[2]
    orders = orders_of(found)
    changes = rehearsed(learner, orders, batches_of(files, learner), target, SIZES[0])
    assert list(changes) == [
        "this order", "its reverse", "most aligned last", "largest gradient first",
    ]  # fmt: skip
    losses, before = train(SIZES[0])[0], train(0.0)[0][0]
    for name, order in orders.items():
        expected = losses[(ORDERS == order).all(axis=1)].item() - before  # noqa: SIM300
        assert changes[name] == pytest.approx(expected, rel=1e-7)
    aligned, large = list(orders.values())[2:]
    assert (np.diff(found.alignment[aligned]) > 0).all()
    assert (np.diff(found.norms[large]) < 0).all()


def test_scores_are_row_sums_and_rules_of_first_order_are_those_of_gradients(found, files, learner):
    np.testing.assert_allclose(found.edges, -found.edges.T, rtol=1e-14)
    np.testing.assert_allclose(found.scores, found.edges.sum(axis=1), rtol=1e-12)
    assert abs(found.scores.sum()) < 1e-12 * np.abs(found.scores).max()
    sources, drawn, target = files
    lm = dataclasses.replace(learner.lower.config, num_layers=2)
    loss = next_token_loss(dataclasses.replace(learner.lower, config=lm))

    @jax.jit
    def gradient(batch):
        def last(block):
            both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), learner.below, block)
            return loss({**learner.head, "layers": both}, batch)

        return jax.flatten_util.ravel_pytree(jax.grad(last)(learner.block))[0]

    def padded(batch):  # to the target's shape, for one program
        missing = whole(target).tokens.shape[0] - batch.tokens.shape[0]
        return jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, missing), (0, 0))), batch)

    goal = gradient(whole(target))
    for i, source in enumerate(sources):
        grad = gradient(padded(whole([drawn[source.digest]])))
        norms = jnp.linalg.norm(grad), jnp.linalg.norm(goal)
        assert found.norms[i] == pytest.approx(float(norms[0]), rel=1e-10)
        cosine = float(grad @ goal / norms[0] / norms[1])
        assert found.alignment[i] == pytest.approx(cosine, rel=1e-9)
        assert found.tokens[i] == int(whole([drawn[source.digest]]).mask[:, 1:].sum())
    assert found.tokens[-1] < found.tokens[0] == SEQUENCES * (TOKENS - 1)


def test_halves_are_studies_of_half_of_all_sequences(found, files, learner, tmp_path):
    sources, drawn, target = files

    def only(half, part):
        # One sequence in each half, and one that is padding.
        tokens, mask = (np.stack([leaf[half]] * 2) for leaf in part)
        turns = np.eye(2, dtype=bool)[:, :, None]
        return Drawn(tokens, mask & turns)

    for half in (0, 1):
        folder = tmp_path / str(half)
        folder.mkdir()
        alone = study(
            sources,
            {digest: only(half, part) for digest, part in drawn.items()},
            [only(half, part) for part in target],
            learner,
            new_store(folder),
        )
        np.testing.assert_allclose(found.noise.scores[half], alone.scores, rtol=1e-9)
        np.testing.assert_allclose(alone.scores, alone.edges.sum(axis=1), rtol=1e-12)
    one, other = found.noise.scores
    assert not np.allclose(one, other, rtol=0.1)
    expected = stats.spearmanr(one, other).statistic
    assert found.noise.rank_correlation == pytest.approx(expected)
    assert found.noise.chance == pytest.approx(3**-0.5)


def test_a_larger_part_of_the_model_may_learn(tiny):
    lm, params = tiny
    params = jax.tree.map(lambda x: x.astype(jnp.float64), params)
    generator = np.random.default_rng(5)
    tokens = generator.integers(0, 256, size=(2, 2, TOKENS))
    mask = np.arange(TOKENS) < generator.integers(3, TOKENS, size=(2, 2, 1))
    every = make_learner(lm, params, ByteReader(), 2)
    assert every.lower is None
    grads = gradients(every, batch_of(every, tokens, mask))
    loss = jax.jit(jax.vmap(next_token_loss(lm), in_axes=(None, 0)))
    flat, back = jax.flatten_util.ravel_pytree(params["layers"])
    direction = generator.normal(size=flat.shape)
    values = [
        loss({**params, "layers": back(flat + size * direction)}, TokenBatch(tokens, mask))
        for size in (1e-5, -1e-5)
    ]
    np.testing.assert_allclose(grads @ direction, (values[0] - values[1]) / 2e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="layers must be in 1 to 2, all blocks of this model, got"):
        make_learner(lm, params, ByteReader(), 3)


def test_equal_files_have_equal_scores_and_names_do_not_matter(found, files, learner, tmp_path):
    sources, drawn, target = files
    renamed = [source._replace(name=f"z{9 - i}") for i, source in enumerate(sources)][::-1]
    twice = [*renamed, renamed[1]._replace(name="copy")]
    other = study(twice, drawn, target, learner, new_store(tmp_path))
    assert other.scores[1] == other.scores[-1]
    assert other.edges[1, -1] == 0
    np.testing.assert_array_equal(other.edges[:COUNT, :COUNT], found.edges[::-1, ::-1])
    np.testing.assert_array_equal(other.alignment[:COUNT], found.alignment[::-1])


def test_what_is_stored_is_not_computed_again(found, files, learner, tmp_path, monkeypatch):
    store = new_store(tmp_path)
    done = []
    save = Store.save_products

    def stop_after_two(self, *args):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(args[0])
        save(self, *args)

    monkeypatch.setattr(Store, "save_products", stop_after_two)
    with pytest.raises(KeyboardInterrupt):
        study(*files, learner, store)
    monkeypatch.undo()
    last = sorted(files[1])[-1]
    path = store.folder / "gradients" / f"{last}.npy"
    path.write_bytes(path.read_bytes()[:1000])  # damaged from outside
    again = study(*files, learner, store)
    assert again.stored == (3, 2)
    path = sorted((store.folder / "batches").iterdir())[0]
    part = batch_at(learner, files[1][path.stem], path.stem, store)
    path.unlink()
    for one, other in zip(part, batch_at(learner, files[1][path.stem], path.stem, store),
                          strict=True):  # fmt: skip
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again.edges, found.edges)
    store.drop_large()
    finished = study(*files, learner, store)
    assert finished.stored == (4, 4)
    np.testing.assert_array_equal(finished.edges, found.edges)
    assert finished.seconds["products"] == again.seconds["products"] > 0
    assert not (store.folder / "gradients").exists()


def test_derivatives_that_are_not_finite_are_told(files, learner, tmp_path):
    sources, drawn, target = files
    bad = learner._replace(block=jax.tree.map(lambda x: x * jnp.nan, learner.block))
    with pytest.raises(ValueError, match="of the target must be finite"):
        study(sources, drawn, target, bad, new_store(tmp_path))


def test_inner_products_are_those_of_all_columns(monkeypatch):
    monkeypatch.setattr(stores, "_COLUMNS", 1)
    generator = np.random.default_rng(0)
    grads = generator.normal(size=(3, 2, 2500)).astype(np.float32)
    vectors = generator.normal(size=(4, 2500)).astype(np.float32)
    expected = np.einsum("nhp,vp->nhv", grads.astype(float), vectors.astype(float))
    np.testing.assert_allclose(inner_products(list(grads), vectors), expected, atol=1e-4)


def test_pairs_to_try_have_a_margin():
    edges = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [-1.0, -1.0, 0.0]])
    assert all(edges[i, j] < 0 for i, j in chosen_pairs(edges))
    assert chosen_pairs(np.zeros((3, 3))) == []


def described(**changes):
    base = {
        "settings": {"seed": 0, "tokens": 12},
        "model": {"name": "small", "digest": "a"},
        "target": "t",
        "sources": {"x": "1", "y": "2"},
    }
    return base | changes


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"settings": {"seed": 1, "tokens": 12}}, "seed 0, now 1"),
        ({"model": {"name": "small", "digest": "b"}}, "the model"),
        ({"target": "u"}, "another target"),
        ({"sources": {"x": "1", "z": "3"}}, "sources without z and with y"),
        ({"sources": {"x": "1", "y": "2", "z": "1"}}, "sources in other numbers"),
    ],
)
def test_another_run_is_refused_until_told_to_begin_anew(tmp_path, changes, told):
    store = open_store(tmp_path, described(), restart=False)
    (store.folder / "products" / "1.npz").write_bytes(b"")
    renamed = described(sources={"a": "2", "b": "1"})
    open_store(tmp_path, renamed, restart=False)
    open_store(tmp_path, described(), restart=False)
    with pytest.raises(ValueError, match=told):
        open_store(tmp_path, described(**changes), restart=False)
    assert (store.folder / "products" / "1.npz").exists()
    open_store(tmp_path, described(**changes), restart=True)
    assert not (store.folder / "products" / "1.npz").exists()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "precious").write_text("mine")
    for restart in (False, True):
        with pytest.raises(ValueError, match="without a readable checkpoints"):
            open_store(tmp_path, described(), restart=restart)
    assert (tmp_path / "checkpoints" / "precious").exists()

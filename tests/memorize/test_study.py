"""Curves, zones and copies of files are those of the mathematics."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

from jaxlab.core.files import json_text
from jaxlab.memorize import analysis
from jaxlab.memorize.report import gap_of, summary
from jaxlab.memorize.rows import open_rows
from jaxlab.memorize.sources import open_files
from jaxlab.memorize.study import Settings, study

WIDTH, C = 64, 3.0
# Blocks of 16 rows everywhere, so that one compiled program serves nearly all tests.
SETTINGS = Settings(width=C, queries=24, sigmas=6, block_rows=16)


@pytest.fixture(scope="module")
def table():
    """Rows whose numbers float32 holds exactly."""
    return np.random.default_rng(1).normal(size=(60, WIDTH)).round(2).astype(np.float32)


def saved(folder, name, array):
    np.save(folder / f"{name}.npy", array)
    return folder / f"{name}.npy"


def studied(data, settings=SETTINGS, holdout=None, samples=None, keys=("", "", "")):
    with open_files(data, holdout, samples, keys) as files:
        return study(*files, settings)


def test_concentration_of_two_rows_and_coverage_of_one(tmp_path):
    # The second row is so far that its shell covers nothing and its weight is 0.
    near, far = np.zeros((1, WIDTH)), np.full((1, WIDTH), 100.0)
    held = np.full((1, WIDTH), 0.375)  # at distance 3 from the first row
    settings = dataclasses.replace(SETTINGS, queries=4000, sigma_min=0.5, sigma_max=400.0)
    paths = [saved(tmp_path, str(i), part) for i, part in enumerate((np.vstack([near, far]), held))]
    found = studied(paths[0], settings, holdout=paths[1])
    inner, outer = WIDTH - 2 * (C * WIDTH) ** 0.5, WIDTH + 2 * (C * WIDTH) ** 0.5 + 2 * C
    sigmas = found.curves.sigmas
    own = stats.chi2(WIDTH)
    assert found.own_mass == pytest.approx(own.cdf(outer) - own.cdf(inner), rel=1e-12)
    seen = sigmas < 5  # beyond, the second row's shell counts as well
    law = stats.ncx2(WIDTH, 9.0 / sigmas[seen] ** 2)
    # Five standard errors of a share, and of a number in [1/2, 1], of 4000 draws.
    np.testing.assert_allclose(
        found.curves.share[seen], law.cdf(outer) - law.cdf(inner), atol=5 * 0.5 / 4000**0.5
    )
    distance = 100.0 * WIDTH**0.5
    weight = stats.norm.cdf(distance / (2 * sigmas))
    assert weight.min() < 0.98  # the formula is put to a test
    np.testing.assert_allclose(found.curves.weight, weight, atol=5 * 0.25 / 4000**0.5)


def test_curves_are_those_of_all_distances_at_once(tmp_path, table):
    sigmas = np.geomspace(0.5, 6.0, 6)
    train, held = np.delete(np.arange(60), np.s_[::5]), np.arange(0, 60, 5)
    with open_rows("DATA", saved(tmp_path, "x", table)) as rows:
        queries = analysis.draw_queries(jax.random.key(0), rows, train, rows, held, num_queries=24)
        curves = analysis.measure_curves(queries, rows, train, sigmas, C, block_rows=16)
    inner, outer = WIDTH - 2 * (C * WIDTH) ** 0.5, WIDTH + 2 * (C * WIDTH) ** 0.5 + 2 * C
    training = table[train].astype(float)
    np.testing.assert_array_equal(queries.train.signals, training[queries.own])
    # Half as many held-out rows as queries: each comes twice, next to each other.
    assert (queries.train_noise, queries.held_noise) == (1, 2)
    np.testing.assert_array_equal(
        queries.held.signals, np.repeat(table[held][queries.places], 2, axis=0)
    )
    for i, sigma in enumerate(sigmas):
        noisy = [np.asarray(part.signals + sigma * part.noise) for part in queries[2:4]]
        squares = [cdist(part, training, "sqeuclidean") / sigma**2 for part in noisy]
        weights = np.exp(-(squares[0] - squares[0].min(axis=1, keepdims=True)) / 2)
        largest = weights.max(axis=1) / weights.sum(axis=1)
        covered = ((squares[1] >= inner) & (squares[1] <= outer)).any(axis=1)
        assert curves.weight[i] == pytest.approx(largest.mean(), rel=1e-9)
        assert curves.weight_error[i] == pytest.approx(stats.sem(largest), rel=1e-9)
        assert curves.share[i] == covered.mean()
    assert 0 < curves.share[2] < 1  # the comparison is not of zeros and ones alone


def test_the_file_does_not_matter_and_neither_do_blocks(tmp_path, table):
    whole = studied(saved(tmp_path, "single", table))
    np.savez_compressed(tmp_path / "x.npz", a=table[:3], b=table)
    blocks = dataclasses.replace(SETTINGS, block_rows=60)
    others = [
        studied(saved(tmp_path, "double", table.astype(float))),
        studied(saved(tmp_path, "columns", np.asfortranarray(table))),
        studied(saved(tmp_path, "images", table.reshape(60, 8, 8))),
        studied(tmp_path / "x.npz", keys=("b", "", "")),
        studied(tmp_path / "single.npy", blocks),
    ]
    for other in others:
        assert len(other.train) == 48
        np.testing.assert_array_equal(other.held_out.chosen, whole.held_out.chosen)
        for one, another in zip(whole.curves, other.curves, strict=True):
            np.testing.assert_allclose(one, another, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(other.zones, whole.zones, rtol=1e-10)


def test_zones_are_read_off_the_finer_grid(tmp_path, table):
    found = studied(saved(tmp_path, "x", table), dataclasses.replace(SETTINGS, threshold=0.7))
    assert len(found.curves.sigmas) == 12
    assert (np.diff(found.curves.sigmas) > 0).all()
    for zone in found.zones:
        sigmas, weight, _, share, _ = found.curves
        inside = (weight >= zone.threshold) & (share >= zone.threshold)
        assert zone.low == sigmas[inside].min()
        assert zone.high == sigmas[inside].max()
        assert zone.next_below == sigmas[sigmas < zone.low].max()
        assert zone.next_above == sigmas[sigmas > zone.high].min()
    chosen, wider, narrower = found.zones
    assert (chosen.threshold, wider.threshold, narrower.threshold) == (0.7, 0.6, 0.8)
    assert wider.low <= chosen.low <= narrower.low <= narrower.high <= chosen.high <= wider.high
    assert wider.low < narrower.low
    assert narrower.high < wider.high
    assert gap_of(found) == (wider.low, wider.high)
    assert found.data_scale == pytest.approx(np.sqrt((table.astype(float) ** 2).mean()))


def test_finer_levels_go_where_curves_cross():
    sigmas = 2.0 ** np.arange(6)
    errors = np.zeros(6)
    weight = np.array([1.0, 1.0, 1.0, 0.9, 0.75, 0.0])
    share = np.array([0.0, 0.75, 0.9, 1.0, 1.0, 1.0])
    curves = analysis.Curves(sigmas, weight, errors, share, errors)
    finer = analysis.finer_levels(curves, (0.8,), 6)
    assert finer is not None
    # Three between 2 and 4, where the coverage rises, and three where the concentration falls.
    np.testing.assert_allclose(np.log2(finer), [1.25, 1.5, 1.75, 3.25, 3.5, 3.75])
    assert analysis.finer_levels(curves._replace(share=errors, weight=errors), (0.8,), 6) is None


def test_default_levels_go_from_half_of_the_reach_to_the_radius():
    reach = 2.0 / (2 * (C * WIDTH) ** 0.5 + 2 * C) ** 0.5  # distance 2
    low, high = analysis.default_ends(np.full(9, 2.0), 10.0, WIDTH, C)
    assert (low, high) == pytest.approx((reach / 2, 10.0))
    # Never less than a factor of 20, and never more than of 10,000.
    assert analysis.default_ends(np.full(9, 2.0), 1.0, WIDTH, C) == pytest.approx((0.05, 1.0))
    assert analysis.default_ends(np.full(9, 1e-9), 1.0, WIDTH, C) == pytest.approx((1e-4, 1.0))


def test_no_zone_where_rows_lie_on_a_plane(tmp_path):
    rows = np.zeros((60, WIDTH))
    rows[:, :2] = np.random.default_rng(0).uniform(size=(60, 2))
    found = studied(saved(tmp_path, "x", rows), dataclasses.replace(SETTINGS, width=1.0))
    assert np.isnan(found.zones[0].low)
    assert gap_of(found) is None
    assert summary(found, SETTINGS)["gap"] is None


def test_copies_are_found_and_repeated_rows_do_not_hide_them(tmp_path, table):
    generator = np.random.default_rng(2)
    # With its twin in the table, a copied row would have two nearest rows at the same distance.
    data = np.concatenate([table[:30], table])
    fresh = generator.normal(size=(10, WIDTH)).astype(np.float32)
    near = table[:10] + generator.normal(size=(10, WIDTH)).astype(np.float32) / 1000
    samples = np.concatenate([table[40:50], near, fresh])
    found = studied(saved(tmp_path, "x", data), samples=saved(tmp_path, "s", samples))
    assert found.samples is not None
    assert found.data.repeats.tolist() == list(range(30, 60))
    assert len(found.train) + found.held_count == 60
    assert found.samples.same.tolist() == [[i, 70 + i] for i in range(10)]
    distances = np.sort(cdist(samples.astype(float), table.astype(float)), axis=1)
    np.testing.assert_allclose(found.samples.copies.distance, distances[:, 0], rtol=1e-9)
    ratios = distances[:, 0] / distances[:, 1]
    np.testing.assert_allclose(found.samples.copies.ratio, ratios, rtol=1e-9)
    assert found.samples.copies.row[:20].tolist() == [*range(70, 80), *range(10)]
    told = summary(found, SETTINGS)["samples"]
    assert told["copy_share"] == (ratios < 1 / 3).mean() == 20 / 30
    assert told["equal_to_a_training_row"] == 10
    assert told["ratio_quantiles"]["0.5"] == pytest.approx(np.median(ratios))
    # Held-out rows are compared with the rows that remain for training.
    held = cdist(data[found.held_out.chosen], data[found.train].astype(float))
    np.testing.assert_array_equal(found.held_out.copies.row, found.train[held.argmin(axis=1)])
    held.sort(axis=1)
    np.testing.assert_allclose(found.held_out.copies.ratio, held[:, 0] / held[:, 1], rtol=1e-9)


def test_bytes_are_scaled_and_floats_are_not(tmp_path):
    images = np.random.default_rng(3).integers(0, 256, size=(60, 8, 8), dtype=np.uint8)
    floats = (images / 127.5 - 1).astype(np.float32)
    samples = saved(tmp_path, "s", floats[:5])  # as a model hands them out
    found = studied(saved(tmp_path, "bytes", images), samples=samples)
    assert found.samples is not None
    assert found.samples.same.tolist() == [[i, i] for i in range(5)]
    assert (found.data.survey.low, found.data.survey.high) == (-1, 1)
    assert found.warnings == []
    other = studied(saved(tmp_path, "floats", floats))
    np.testing.assert_allclose(found.curves.sigmas, other.curves.sigmas, rtol=1e-6)
    assert found.zones[0].low == pytest.approx(other.zones[0].low, rel=1e-6)
    # Left alone, 0 to 255 are told from -1 to 1.
    left = studied(
        tmp_path / "bytes.npy", dataclasses.replace(SETTINGS, scale="none"), None, samples
    )
    assert left.zones[0].low == pytest.approx(127.5 * found.zones[0].low, rel=1e-6)
    assert "are both of one scale?" in left.warnings[0]


def test_unit_scale_is_that_of_the_data_for_all_files(tmp_path, table):
    data, held = table[:48], 3 * table[48:] + 1
    unit = dataclasses.replace(SETTINGS, scale="unit")
    found = studied(saved(tmp_path, "x", data), unit, holdout=saved(tmp_path, "h", held))
    factor = 2 / (float(data.max()) - float(data.min()))
    assert found.scale.factor == pytest.approx(factor)
    scaled = data.astype(float) * factor - 1 - factor * float(data.min())
    seen = found.data.survey
    assert (seen.low, seen.high) == pytest.approx((-1, 1))
    assert found.data_scale == pytest.approx(np.sqrt((scaled**2).mean()))
    radius = np.sqrt(np.square(scaled - scaled.mean(axis=0)).sum(axis=1).mean())
    assert seen.radius == pytest.approx(radius)
    shifted = held.astype(float) * factor - 1 - factor * float(data.min())
    assert found.held_out.source.survey.high == pytest.approx(shifted.max())


@pytest.mark.parametrize("scale", ["auto", "unit"])
def test_equal_rows_are_found_whatever_the_precision_and_the_scale(tmp_path, scale):
    rows = np.random.default_rng(4).normal(size=(60, WIDTH))
    settings = dataclasses.replace(SETTINGS, scale=scale)
    single = saved(tmp_path, "single", rows[::2].astype(np.float32))
    found = studied(saved(tmp_path, "double", rows), settings, samples=single)
    assert found.samples is not None
    assert found.samples.same.tolist() == [[i, 2 * i] for i in range(30)]
    with pytest.raises(ValueError, match="got 30 of 30 rows that are in both"):
        studied(tmp_path / "double.npy", settings, holdout=single)


def test_the_seed_decides(tmp_path, table):
    path = saved(tmp_path, "x", table)
    first, again = (json_text(summary(studied(path), SETTINGS)) for _ in range(2))
    assert again == first
    other = studied(path, dataclasses.replace(SETTINGS, seed=1))
    assert json_text(other.curves) != json_text(json.loads(first)["curves"])


def test_warnings(tmp_path, table):
    doubled = np.concatenate([table[:40], table[:20] + np.float32(1e-5)])
    (told,) = studied(saved(tmp_path, "near", doubled)).warnings
    assert "near-copies" in told
    held = saved(tmp_path, "held", table[:1] + 1)
    few = studied(saved(tmp_path, "less", table[:48]), holdout=held).warnings
    assert "the coverage rests on few held-out rows, 1" in few
    thin = dataclasses.replace(SETTINGS, width=0.1)
    (told,) = studied(saved(tmp_path, "x", table), thin).warnings
    assert "take a larger width" in told
    narrow = dataclasses.replace(SETTINGS, sigma_min=1.9, sigma_max=2.0)
    (told,) = studied(tmp_path / "x.npy", narrow).warnings
    assert "see --sigma-min and --sigma-max" in told

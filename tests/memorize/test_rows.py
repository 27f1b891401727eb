"""Reading rows: what a file is, which rows are the same, and what is refused."""

import numpy as np
import pytest

from jaxlab.memorize import survey as surveys
from jaxlab.memorize.rows import open_rows, own_scale
from jaxlab.memorize.survey import first_equals, shared_rows, survey

WIDTH = 12


@pytest.fixture
def table():
    return np.random.default_rng(0).normal(size=(20, WIDTH))


def saved(folder, name, array, **options):
    np.save(folder / f"{name}.npy", array, **options)
    return folder / f"{name}.npy"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [">f8", "float16", "float32", "int64", "uint8", "bool"])
def test_rows_are_those_of_the_array(tmp_path, table, dtype, order):
    array = np.asarray(10 * np.abs(table).reshape(20, 3, 4), dtype=dtype, order=order)
    np.savez_compressed(tmp_path / "several.npz", other=table, wanted=array)
    chosen = np.array([3, 17, 4])
    expected = array.reshape(20, WIDTH)[chosen].astype(float)
    for path, key in (
        (saved(tmp_path, "one", array), ""),
        (tmp_path / "several.npz", "wanted"),
    ):
        with open_rows("DATA", path, key) as rows:
            taken = rows.take(chosen)
            assert (len(rows), rows.row_shape, rows.width) == (20, (3, 4), WIDTH)
        assert taken.dtype == np.float64
        np.testing.assert_array_equal(taken, expected)


def test_an_unpacked_npz_leaves_nothing_behind(tmp_path, table):
    np.savez(tmp_path / "x.npz", table)
    with open_rows("DATA", tmp_path / "x.npz") as rows:
        assert rows.array.is_file()
        assert rows.path == tmp_path / "x.npz"
    assert not rows.array.parent.exists()


def test_bytes_become_minus_one_to_one(tmp_path):
    path = saved(tmp_path, "x", np.array([[0, 255], [51, 204]], np.uint8))
    with open_rows("DATA", path) as rows:
        assert own_scale(rows, "auto") == (1 / 127.5, -1.0)
        assert own_scale(rows, "none") == own_scale(rows, "unit") == (1.0, 0.0)


def test_a_pass_in_blocks_has_the_moments_of_the_whole(tmp_path, table):
    # Far from 0, where sums of squares would cancel.
    array = table + 1e6
    array[4], array[9] = 7.0, 8.0
    with open_rows("DATA", saved(tmp_path, "x", array)) as rows:
        for block_rows in (3, 20):
            seen = survey(rows, block_rows=block_rows)
            assert (seen.low, seen.high) == (array.min(), array.max())
            assert seen.mean == pytest.approx(array.mean(), rel=1e-13)
            assert seen.square == pytest.approx((array**2).mean(), rel=1e-13)
            radius = np.sqrt(np.square(array - array.mean(axis=0)).sum(axis=1).mean())
            assert seen.radius == pytest.approx(radius, rel=1e-10)
            assert seen.constant.tolist() == [4, 9]


def test_repeated_rows_are_found_in_any_block(tmp_path, table):
    array = table.astype(np.float32)
    array[0, 0], array[7] = 0.0, array[0]
    array[7, 0] = -0.0  # the same number
    array[12] = array[19] = array[5]
    array = array.astype(float)
    array[5, 0], array[12, 0], array[19, 0] = 1e-60, -1e-60, 0.0  # 0 in float32
    with open_rows("DATA", saved(tmp_path, "x", array)) as rows:
        for block_rows in (3, 20):
            seen = survey(rows, block_rows=block_rows)
            first = first_equals(rows, seen.hashes, block_rows=block_rows)
            expected = np.arange(20)
            expected[[7, 12, 19]] = 0, 5, 5
            np.testing.assert_array_equal(first, expected)


def test_rows_whose_hashes_collide_are_not_the_same(tmp_path, table, monkeypatch):
    monkeypatch.setattr(surveys, "_digest", lambda row: 1)
    with open_rows("DATA", saved(tmp_path, "x", table)) as rows:
        seen = survey(rows, block_rows=8)
        assert len(np.unique(seen.hashes)) == 1
        np.testing.assert_array_equal(
            first_equals(rows, seen.hashes, block_rows=8), np.arange(len(table))
        )


def test_shared_rows_are_found_across_precisions(tmp_path, table):
    others = np.concatenate([table[:2] + 1, table[[13, 4]], table[13:14]]).astype(np.float32)
    with (
        open_rows("DATA", saved(tmp_path, "x", table)) as rows,
        open_rows("holdout", saved(tmp_path, "y", others)) as held,
    ):
        hashes = [survey(part, block_rows=8).hashes for part in (rows, held)]
        pairs = shared_rows(rows, hashes[0], held, hashes[1], block_rows=2)
    assert pairs.tolist() == [[2, 13], [3, 4], [4, 13]]


@pytest.mark.parametrize("block_rows", [3, 20])
def test_rows_that_are_not_finite_are_counted_over_all_blocks(tmp_path, table, block_rows):
    table[11, 2], table[6, 0], table[17] = np.nan, -np.inf, 1e300
    with (
        open_rows("DATA", saved(tmp_path, "x", table)) as rows,
        pytest.raises(
            ValueError, match="got 3 of 20 rows with NaN or infinity, the first at index 6"
        ),
    ):
        survey(rows, block_rows=block_rows)

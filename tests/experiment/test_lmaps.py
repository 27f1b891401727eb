"""The experiment ``lmaps`` from its command to its files."""

import json
import random

import numpy as np
import pytest

from jaxlab.core.locate import load_companion
from jaxlab.data.images import load_images
from jaxlab.experiment import read_metrics, select
from jaxlab.experiment.lmaps_report import TILE, draw, psnr

SMOKE = ("--smoke", "--seeds", 2, "--no-progress")


def check_verdict(out, printed):
    summary = json.loads((out / "summary.json").read_text())
    assert f"verdict: {summary['verdict']}" in printed
    held = {criterion["name"]: criterion["holds"] for criterion in summary["criteria"]}
    for task in ("inpainting", "super-resolution"):
        assert held[f"{task}: posterior mean over LMAPS, dB"]
        assert held[f"{task}: LMAPS over the best DPS, dB"]
    rows = read_metrics(out / "metrics.csv")
    # The picture's truth is a piece of the photograph, patch by patch.
    row, column = load_companion("experiments", "lmaps").CORNER
    (image,) = load_images("astronaut").pixels
    tile = image[row : row + TILE, column : column + TILE]
    found = np.array([pixel.value for pixel in select(rows, method="true", metric="pixel")])
    patches = found.reshape(TILE // 8, TILE // 8, 8, 8).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(patches.reshape(TILE, TILE), tile)


@pytest.mark.slow
def test_smoke_run(program, tmp_path, seed, check_reference, check_redrawing):
    # One test, since every worker would repeat the run for a fixture.
    out = tmp_path / "run"
    count = random.Random(seed).randrange(2, 6)
    done = program.resume_killed("lmaps", SMOKE, count, out)
    check_verdict(out, done.stdout)
    check_reference("lmaps", out)
    check_redrawing(draw, out, tmp_path / "redrawn")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"patches": 8}, "patches must be at least 16 and a multiple of seeds = 4, got 8"),
        ({"patches": 50}, "patches must be at least 16 and a multiple of seeds = 4, got 50"),
        ({"components": 0}, "components must be between 1 and rows = 5000, got 0"),
    ],
)
def test_impossible_flags(flags, complaint):
    module = load_companion("experiments", "lmaps")
    with pytest.raises(ValueError, match=complaint):
        module.Args(**flags)


def test_decibels_are_those_of_scikit_image():
    from skimage.metrics import peak_signal_noise_ratio

    generator = np.random.default_rng(0)
    truth, found = generator.uniform(-1, 1, size=(2, 8, 8))
    expected = peak_signal_noise_ratio(truth, found, data_range=2)
    assert psnr(np.mean((truth - found) ** 2)) == pytest.approx(expected)

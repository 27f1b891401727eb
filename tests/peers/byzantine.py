"""Compare robust means and attacks with ByzFL on the same matrices.

By hand, in an environment with `pip install -e '.[peers]'`:

    python tests/peers/byzantine.py          # compare and print
    python tests/peers/byzantine.py --write  # and write the golden file of the tests

What ByzFL computes, and nothing of ours, goes into the golden file.
"""

import argparse
import functools
import importlib.util
import sys
import types
from pathlib import Path

import jax
import numpy as np

GOLDEN = Path(__file__).parents[1] / "oracles" / "golden" / "byzfl.npz"
sys.path.insert(0, str(Path(__file__).parents[1] / "oracles"))
jax.config.update("jax_enable_x64", True)


@functools.cache
def import_byzfl() -> types.ModuleType:
    """ByzFL without its training loop, which needs torchvision."""
    spec = importlib.util.find_spec("byzfl")
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError("byzfl is not installed; it comes with: pip install 'jaxlab[peers]'")
    package = types.ModuleType("byzfl")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["byzfl"] = package
    from byzfl import aggregators, attacks

    package.aggregators, package.attacks = aggregators, attacks
    return package


def theirs(vectors: np.ndarray, honest: np.ndarray, f: int) -> dict[str, np.ndarray]:
    """Everything that ByzFL has and we have, in NumPy float64."""
    byzfl = import_byzfl()
    rules, lies = byzfl.aggregators, byzfl.attacks
    clipping = rules.CenteredClipping(L=2, tau=1.5)
    first = clipping(vectors)
    return {
        "mean": rules.Average()(vectors),
        "coordinate_median": rules.Median()(vectors),
        "trimmed_mean": rules.TrMean(f=f)(vectors),
        "geometric_median": rules.GeometricMedian(nu=0.1, T=3)(vectors),
        "krum": rules.Krum(f=f)(vectors),
        "multi_krum": rules.MultiKrum(f=f)(vectors),
        "minimum_diameter_average": rules.MDA(f=f)(vectors),
        "centered_clipping": np.stack([first, clipping(vectors[::-1])]),
        "nearest_neighbour_mixing": rules.NNM(f=f)(vectors),
        "sign_flip": lies.SignFlipping()(honest),
        "inner_product_manipulation": lies.InnerProductManipulation(tau=0.7)(honest),
        "a_little_is_enough": lies.ALittleIsEnough(tau=1.5)(honest),
        "mimic": lies.Mimic(epsilon=1)(honest),
    }


def main() -> None:
    """Compare, print, and write if asked to."""
    from byzantine_cases import CASES, matrix, ours

    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    golden = {}
    for name, (clients, dim, f) in CASES.items():
        vectors = matrix(name)
        mine = ours(vectors, f)
        for what, value in theirs(vectors.copy(), vectors[f:].copy(), f).items():
            golden[f"{name}/{what}"] = value
            worst = float(np.abs(np.asarray(mine[what]) - value).max())
            print(f"n = {clients}, d = {dim}, f = {f}  {what:<28}{worst:.1e}")
    if args.write:
        GOLDEN.parent.mkdir(exist_ok=True)
        np.savez_compressed(GOLDEN, **golden)
        print(f"wrote {GOLDEN}")


if __name__ == "__main__":
    main()

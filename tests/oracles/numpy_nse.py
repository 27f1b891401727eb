"""The theory of noise sensitivity in NumPy and SciPy, by adaptive quadrature in ``z``."""

import itertools

import numpy as np
from scipy import integrate

__all__ = [
    "amp",
    "densities",
    "information",
    "inverse_threshold",
    "outputs",
    "squared_score",
]


def normal(x):
    return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def outputs(sigma, lam, spacing=0.1):
    """A grid over what can be observed, for a function of values near 0."""
    values = np.sqrt(lam) * np.array([sigma(z) for z in np.linspace(-9, 9, 4001)])
    return np.arange(values.min() - 9, values.max() + 9, spacing)


def densities(sigma, lam, y, breaks=(), mean=0.0, variance=1.0):
    """``int N(z; mean, variance) (1, u, u^2 - 1) p(y | z) dz`` at all ``y``; ``u`` standardised."""
    deviation = np.sqrt(variance)

    def integrand(u):
        like = normal(u) * normal(y - np.sqrt(lam) * sigma(mean + deviation * u))
        return np.stack([like, u * like, (u * u - 1) * like])

    inside = [(b - mean) / deviation for b in breaks]
    ends = [-9.0, *sorted(e for e in inside if -9 < e < 9), 9.0]
    pieces = [
        integrate.quad_vec(integrand, low, high, epsabs=1e-12, epsrel=1e-10)[0]
        for low, high in itertools.pairwise(ends)
    ]
    return np.sum(pieces, axis=0)


def inverse_threshold(sigma, lam, breaks=()):
    grid = outputs(sigma, lam)
    p, _, second = densities(sigma, lam, grid, breaks)
    return np.trapezoid(second**2 / p, grid)


def over_known(function, num=71, reach=7.0):
    """The mean over a standard normal, by the trapezoid rule."""
    grid = np.linspace(-reach, reach, num)
    return np.trapezoid([normal(v) * function(v) for v in grid], grid)


def information(sigma, lam, q, breaks=()):
    """Mutual information of ``y`` and ``V``, as a difference of entropies."""
    grid = outputs(sigma, lam)

    def neg_entropy(mean, variance):
        p = densities(sigma, lam, grid, breaks, mean, variance)[0]
        return np.trapezoid(p * np.log(p), grid)

    return over_known(lambda v: neg_entropy(np.sqrt(q) * v, 1 - q)) - neg_entropy(0.0, 1.0)


def squared_score(sigma, lam, q, breaks=()):
    grid = outputs(sigma, lam)

    def conditional(v):
        p, first, _ = densities(sigma, lam, grid, breaks, np.sqrt(q) * v, 1 - q)
        return np.trapezoid(first**2 / p, grid) / (1 - q)

    return over_known(conditional)


def amp(features, labels, sigma, lam, start, num_steps, num_nodes):
    """Generalised AMP with a Gaussian prior, one sample after the other."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
    weights = weights / weights.sum()
    n, d = features.shape
    what, g, v = start.copy(), np.zeros(n), 1 - np.mean(start**2)
    for _ in range(num_steps):
        omega = features @ what - v * g
        slopes = np.empty(n)
        for a in range(n):
            z = omega[a] + np.sqrt(v) * nodes
            logs = np.log(weights) - (labels[a] - np.sqrt(lam) * sigma(z)) ** 2 / 2
            w = np.exp(logs - logs.max())
            w /= w.sum()
            mean = w @ z
            g[a] = (mean - omega[a]) / v
            slopes[a] = (w @ (z - mean) ** 2) / v**2 - 1 / v
        precision = -(n / d) * slopes.mean()
        what = (features.T @ g + precision * what) / (1 + precision)
        v = 1 / (1 + precision)
    return what, v

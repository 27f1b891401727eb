"""DeMoA and the naive combination as plain loops over clients and rounds."""

import numpy as np


def median_demoa(gradient, x, byzantine, samples, *, momentum, step_size, scale, over="cache"):
    """Parameters after every round; liars send ``-scale`` times the honest momenta's mean."""
    clients = len(byzantine)
    cache = [np.zeros_like(x) for _ in range(clients)]
    path = []
    for sampled in samples:
        for i in range(clients):
            if sampled[i] and not byzantine[i]:
                cache[i] = (1 - momentum) * cache[i] + momentum * gradient(i, x)
        honest = np.mean([cache[i] for i in range(clients) if not byzantine[i]], axis=0)
        for i in range(clients):
            if sampled[i] and byzantine[i]:
                cache[i] = -scale * honest
        heard = [cache[i] for i in range(clients) if over == "cache" or sampled[i]]
        if heard:
            x = x - step_size * np.median(heard, axis=0)
        path.append(x)
    return np.array(path)

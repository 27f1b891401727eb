"""Viewers of films as tasks: what the experiment ``multitask_limits`` draws from."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from jaxlab.data.movielens import film_ratings

__all__ = ["Genres", "Panel", "film_panel"]


class Genres(NamedTuple):
    """Users by genre, padded to one number of users.

    Attributes:
        plus: The share of a user's ratings in the genre above his or her mean, of one half of them.
        minus: The share below.
        held_out: Above less below, of the other half.
        real: Which users there are.
        sign: What is to be learned: whether most ratings of the genre are above or below, 1 or -1.
    """

    plus: Float[np.ndarray, "genres users"]
    minus: Float[np.ndarray, "genres users"]
    held_out: Float[np.ndarray, "genres users"]
    real: Bool[np.ndarray, "genres users"]
    sign: Float[np.ndarray, " genres"]


class Panel(NamedTuple):
    """Attributes: genres: see ``Genres``."""

    genres: Genres


def film_panel(*, num_genres: int = 5, least: int = 8) -> Panel:
    """Users with at least ``least`` ratings of a genre, for the most frequent genres.

    Every other rating of a user is held out.
    """
    found = film_ratings()
    mean = np.bincount(found.user, found.rating) / np.bincount(found.user)
    label = np.sign(found.rating - mean[found.user])
    rows = []
    for genre in range(num_genres):
        chosen = found.genre == genre
        users, labels = found.user[chosen], label[chosen]
        kept = np.flatnonzero(np.bincount(users) >= least)
        own = [labels[users == user] for user in kept]
        rows.append(
            (
                [(one[::2] > 0).mean() for one in own],
                [(one[::2] < 0).mean() for one in own],
                [one[1::2].mean() for one in own],
                np.sign(labels.sum()),
            )
        )
    width = max(len(row[0]) for row in rows)

    def padded(i: int) -> np.ndarray:
        return np.array([[*row[i], *[0.0] * (width - len(row[i]))] for row in rows])

    real = np.array([np.arange(width) < len(row[0]) for row in rows])
    signs = np.array([row[3] for row in rows])
    return Panel(Genres(padded(0), padded(1), padded(2), real, signs))

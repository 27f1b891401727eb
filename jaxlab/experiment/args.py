"""The flags that every experiment has."""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp

__all__ = ["CommonArgs", "seed_keys"]


@dataclass(frozen=True)
class CommonArgs:
    """Flags of every experiment; each experiment adds its own."""

    seed: int = 0
    """The first random seed; everything random follows from it."""
    seeds: int = 4
    """How many independent repetitions, for medians and confidence intervals."""
    smoke: bool = False
    """A small version that ends within a minute; its verdict says little."""
    out: Path | None = None
    """The folder to write, results/SLUG if not given; an earlier run's files are replaced."""
    resume: bool = False
    """Go on with an interrupted run in the same folder, of the same flags."""
    progress: bool = True
    """Show a progress bar on standard error."""
    json: str | None = None
    """Write the summary to this file as well; "-" means standard output."""

    def __post_init__(self) -> None:
        """Check the values that the types leave open."""
        if self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, got {self.seeds}")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed must be in [0, 2**31), got {self.seed}")


def seed_keys(args: CommonArgs, count: int | None = None) -> jax.Array:
    """One key per repetition, the same whatever the other flags; ``args.seeds`` of them.

    Example:
        >>> seed_keys(CommonArgs(seed=3, seeds=2)).shape
        (2,)
    """
    number = args.seeds if count is None else count
    return jnp.stack([jax.random.key(args.seed + s) for s in range(number)])

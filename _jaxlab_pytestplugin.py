"""The options of ``pytest --claims``, and nothing else unless it is given.

This module is beside the package, since an entry point inside it would import the package before
import hooks (jaxtyping's, coverage's) can be installed.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the claims."""
    group = parser.getgroup("claims", "theorems of jaxlab")
    group.addoption(
        "--claims",
        action="store_true",
        help="turn each jaxlab.claims.Claim at the top level of a test file, of *_claims.py or of "
        "a file that is named here into tests",
    )
    group.addoption(
        "--claims-effort",
        choices=("quick", "standard", "deep"),
        default="quick",
        help="how hard to try (default: quick)",
    )
    group.addoption(
        "--claims-seed",
        type=int,
        default=0,
        metavar="N",
        help="the seed of all random choices (default: 0)",
    )
    group.addoption(
        "--claims-out",
        default="results/claims",
        metavar="DIR",
        help="the folder for counterexamples (default: results/claims)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the rest only where it is asked for."""
    if config.getoption("claims"):
        from jaxlab.pytest_plugin import ClaimsPlugin

        config.pluginmanager.register(ClaimsPlugin(), "jaxlab_claims")

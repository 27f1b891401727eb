"""What the tests of the library share; the settings of all tests are in the root's conftest."""

import os
from collections.abc import Iterator

import jax
import jaxtyping
import pytest

# Other folders test programs in subprocesses or the claims, which broadcast on purpose.
STRICT_FOLDERS = ("conformance", "devices", "oracles", "unit")


@pytest.fixture(autouse=True)
def no_silent_broadcasting(request: pytest.FixtureRequest) -> Iterator[None]:
    """Arrays of different ranks never meet by accident in the library."""
    if request.path.parent.name in STRICT_FOLDERS:
        with jax.numpy_rank_promotion("raise"):
            yield
    else:
        yield


@pytest.fixture
def seed() -> int:
    """A seed that is printed, so that a failure can be repeated with ``JAXLAB_TEST_SEED``."""
    value = int(os.environ.get("JAXLAB_TEST_SEED", "0"))
    print(f"JAXLAB_TEST_SEED={value}")
    return value


@pytest.fixture
def without_type_checks() -> Iterator[None]:
    """Without the run-time type checker, as for users: it would speak before our own messages."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)

import pytest

pytestmark = pytest.mark.lm


def test_x(smollm):
    assert smollm.lm.config.dim == 576

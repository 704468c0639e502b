"""Arrays that several tests use."""

import numpy as np
import pytest


@pytest.fixture
def field() -> np.ndarray:
    """A smooth field with some noise, float32, of shape 40 x 60 x 50."""
    rng = np.random.default_rng(7)
    z, y, x = np.meshgrid(*(np.linspace(0, 3, n) for n in (40, 60, 50)), indexing="ij")
    return (np.sin(2 * x + y) * np.cos(y - z) + 0.01 * rng.normal(size=x.shape)).astype("float32")

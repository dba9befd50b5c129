"""One engine shared by tests that leave nothing behind."""

import pytest
import torch

from tests.engine.harness import Harness


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_harness():
    return Harness()


@pytest.fixture
def harness(shared_harness):
    """The shared engine, checked for leftovers when the test is over."""
    yield shared_harness
    shared_harness.engine.parts.warm.clear()
    shared_harness.engine.parts.cache.unpin_all()
    assert not any(shared_harness.leftovers().values())

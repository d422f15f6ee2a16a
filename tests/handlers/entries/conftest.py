import pytest

from tests.support.served import entered, serving


@pytest.fixture
def served(io_loop):
    """Yield a server with the usual handlers."""
    yield from entered(io_loop, serving())

"""Three Soft-RoCE RNICs on one switch, and probers on them."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.rdma.fabric import make_fabric, run, shape
from tests.rdma.pairs import RdmaPair

RNICS = 3
# Set in the machine; nowhere else do these tests mean anything.
INSIDE = os.environ.get("SKELETONHUNTER_RXE") == "1"
collect_ignore_glob = [] if INSIDE else ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def fabric() -> None:
    """Make the RNICs, once."""
    make_fabric(RNICS)


@pytest.fixture(autouse=True)
def healthy() -> Iterator[None]:
    """Take away what a test has put in the way."""
    yield
    for number in range(RNICS):
        shape(f"e{number}")
        shape(f"p{number}", switch=True)
        run("ip", "link", "set", f"e{number}", "up")


@pytest.fixture
def pair() -> Iterator[RdmaPair]:
    """Return a prober on the first RNIC and a responder on the second."""
    made = RdmaPair()
    made.settle()
    yield made
    made.close()


@pytest.fixture
def pairs() -> Iterator[Callable[..., RdmaPair]]:
    """Return what makes pairs with other settings."""
    made: list[RdmaPair] = []

    def make(**settings: object) -> RdmaPair:
        made.append(RdmaPair(**settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.close()

"""Whether there are compiled kernels: numba is installed."""

from importlib.util import find_spec
from typing import Final

HAS_KERNELS: Final = find_spec("numba") is not None

"""The version of the project: records carry it, and pyproject.toml reads it from here.

A constant: `importlib.metadata` would cost an agent 2 MB of memory to find it out.
"""

from typing import Final

VERSION: Final = "0.1.0"

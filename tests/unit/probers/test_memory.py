"""What an agent does not load."""

import subprocess
import sys

LAZY = """
import sys
from probers.memory import hide_unneeded_modules
hide_unneeded_modules()
from dataclasses import dataclass
import inspect
print("ast" in sys.modules)

@dataclass
class Described:
    '''A docstring.'''
    number: int

print("ast" in sys.modules)

@dataclass
class Undescribed:
    number: int

print(Undescribed.__doc__, "ast" in sys.modules, inspect.isclass(Undescribed))
from inspect import isfunction
print(isfunction(hide_unneeded_modules))
"""


def test_a_lazy_module_is_loaded_when_it_is_used() -> None:
    """A dataclass without a docstring asks `inspect` for a signature; others do not."""
    command = [sys.executable, "-c", LAZY]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [
        "False",
        "False",
        "Undescribed(number: int) True True",
        "True",
    ]

"""Settings of a process: tables of one TOML file, and what is wrong with them."""

import os
import tomllib
from pathlib import Path
from typing import Any, Final

CONFIG_ENV: Final = "SKELETONHUNTER_CONFIG"


class ConfigError(ValueError):
    """A setting that cannot be used; the message names it, its value and what to do.

    `exit_code` is what a process ends with that cannot start because of it.
    """

    exit_code = 2


def read_table(config: Path | None, name: str) -> dict[str, Any]:
    """Return a table of the TOML file given or named by SKELETONHUNTER_CONFIG; {} without one."""
    path = config or (Path(p) if (p := os.environ.get(CONFIG_ENV)) else None)
    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"config file {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"config file {path}: {error}") from error
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"config file {path}: [{name}] must be a table")
    return table

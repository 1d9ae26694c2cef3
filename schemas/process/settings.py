"""Settings of a process: flags before environment before its table of one TOML file.

Each setting stands once, with its default, bounds and explanation; flags, variables, keys of the
table, `--help` and checks are made from it. Whatever is wrong is collected and reported at once.
"""

import os
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from schemas.process.files import read_file

CONFIG_ENV: Final = "SKELETONHUNTER_CONFIG"
DOC: Final = "doc"
BOUNDS: Final = "bounds"
# Keys that every process's table may have: how it logs.
LOG_KEYS: Final = ("log_level", "log_json")

Config = TypeVar("Config")


class ConfigError(ValueError):
    """A setting that cannot be used; the message names it, its value and what to do.

    `exit_code` is what a process ends with that cannot start because of it.
    """

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its key in the table, kind (int, float, str), default, explanation, bounds."""

    name: str
    kind: type
    default: Any
    doc: str
    low: float = 0
    high: float = 0

    @property
    def flag(self) -> str:
        """Name on the command line."""
        return "--" + self.name.replace("_", "-")

    def variable(self, section: str) -> str:
        """Name of the environment variable; `section` is the process's table."""
        return f"SKELETONHUNTER_{section}_{self.name}".upper()


def setting(default: Any, doc: str, bounds: tuple[float, float] | None = None) -> Any:
    """Return a field of a config class; `default` may be a function that returns the default."""
    metadata = {DOC: doc, BOUNDS: bounds or (0, 0)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def settings_of(config: type) -> tuple[Setting, ...]:
    """Return the settings of a class whose fields are all made by `setting`."""
    return tuple(
        Setting(
            f.name,
            cast(type, f.type),
            f.default_factory() if f.default_factory is not MISSING else f.default,
            f.metadata[DOC],
            *f.metadata[BOUNDS],
        )
        for f in fields(config)
    )


def read_values(
    settings: Iterable[Setting],
    section: str,
    *,
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    table: Mapping[str, Any],
    wrong: list[str],
    more_keys: Collection[str] = (),
) -> dict[str, Any]:
    """Return a checked value for every setting that was given.

    Parameters
    ----------
    settings
        All settings of the process.
    section
        Name of the process's table, such as `worker`.
    flags, environment, table
        Values by name, the first source counts; None and "" are not given.
    wrong
        Gets a sentence for everything that is wrong.
    more_keys
        Keys of the table that are read elsewhere.
    """
    settings = tuple(settings)
    known = [s.name for s in settings]
    keys = (*known, *more_keys, *LOG_KEYS)
    wrong.extend(no_such_setting(section, key, keys) for key in table if key not in keys)
    values: dict[str, Any] = {}
    for one in settings:
        for source, raw in (
            (one.flag, flags.get(one.name)),
            (one.variable(section), environment.get(one.variable(section))),
            (f"[{section}] {one.name}", table.get(one.name)),
        ):
            if raw is None or raw == "":
                continue
            if one.kind is not str:
                values[one.name] = checked_number(source, raw, one.kind, (one.low, one.high), wrong)
            elif isinstance(raw, str):
                values[one.name] = raw
            else:
                wrong.append(f"{source}={raw!r} must be a text")
            break
    return values


def no_such_setting(section: str, key: str, known: Collection[str]) -> str:
    """Return the sentence for a key that no setting has, with those that may be meant."""
    # Only here: an agent whose settings are right does without it.
    from difflib import get_close_matches  # noqa: PLC0415

    near = get_close_matches(key, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    return f"[{section}] {key}: no such setting; {hint}"


def build_config(
    config: type[Config],
    section: str,
    *,
    flags: Mapping[str, Any],
    table: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Return a config whose fields are all made by `setting`.

    Raises
    ------
    ConfigError
        If a setting is unknown, of the wrong kind or out of bounds; all are named.
    """
    wrong: list[str] = []
    given = os.environ if environment is None else environment
    values = read_values(
        settings_of(config), section, flags=flags, environment=given, table=table, wrong=wrong
    )
    if wrong:
        raise ConfigError("; ".join(wrong))
    return config(**values)


def checked_number(
    source: str, raw: Any, kind: type, bounds: tuple[float, float], wrong: list[str]
) -> Any:
    """Return a number of the kind (int or float) within the bounds; the lower one where it is none.

    30 and 30.0 are the same setting; a boolean is a number for Python, not for people.
    """
    low, high = bounds
    try:
        value = None if isinstance(raw, bool) else float(raw)
    except (TypeError, ValueError):
        value = None
    fits = value is not None and (kind is not int or value.is_integer())
    if value is None or not fits or not low <= value <= high:
        number = "a whole number" if kind is int else "a number"
        shown = raw if fits else repr(raw)
        wrong.append(f"{source}={shown}: {number} from {low:g} to {high:g}")
        return low
    return kind(value)


def read_table(config: Path | None, name: str) -> dict[str, Any]:
    """Return a table of the TOML file given or named by SKELETONHUNTER_CONFIG; {} without one."""
    path = config or (Path(p) if (p := os.environ.get(CONFIG_ENV)) else None)
    if path is None:
        return {}
    try:
        content = tomllib.loads(read_file(path).decode())
    except OSError as error:
        raise ConfigError(f"config file {path}: {error.strerror}") from error
    except RecursionError as error:
        raise ConfigError(f"config file {path}: nested too deep") from error
    except ValueError as error:
        raise ConfigError(f"config file {path}: {error}") from error
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"config file {path}: [{name}] must be a table")
    return table

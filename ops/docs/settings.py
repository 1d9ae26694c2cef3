"""`docs/reference/settings.md`: settings of the processes, from their configuration classes."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, Final

from localizer import config as localizer_config
from probers.config.settings import ENV_PREFIX as AGENT_ENV_PREFIX
from probers.config.settings import OPTIONS, Option
from skeleton_job import config as skeleton_config
from streams import config as worker_config

INTRODUCTION: Final = """\
# Settings

<!-- Written by `python -m ops.docs` from the configuration classes of the processes. -->

Sources, in order of precedence: flag, environment variable, the process's table in the TOML file
(`--config FILE` or `SKELETONHUNTER_CONFIG`), default. A setting `some_name` is the flag
`--some-name`, where the process has one, and the variable `<prefix>SOME_NAME`. A process with wrong
settings names all of them and exits with code 2. The `[kafka]` table is common to all processes and
described in [Your own Kafka](../../README.md#your-own-kafka).
"""

# Values that depend on the machine.
DEFAULTS: Final = {"workers": "2, or 1 on a single core"}
# `name` or `one, two` at the margin of the Attributes section of a docstring.
NAMES: Final = re.compile(r"^[a-z_]+(, [a-z_]+)*$")


def page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    for title, table, cls, bounds, prefix in (
        ("Stream worker", "worker", worker_config.WorkerConfig, worker_config.BOUNDS,
         worker_config.ENV_PREFIX),
        ("Skeleton job", "skeleton", skeleton_config.SkeletonConfig, skeleton_config.BOUNDS,
         skeleton_config.ENV_PREFIX),
        ("Localizer", "localizer", localizer_config.LocalizerConfig, localizer_config.BOUNDS,
         localizer_config.ENV_PREFIX),
    ):  # fmt: skip
        parts.append("\n".join([*_heading(title, table, prefix), *_rows(cls, bounds)]) + "\n")
    agent = [*_heading("Agent", "agent", AGENT_ENV_PREFIX), *map(_agent_row, OPTIONS)]
    parts.append("\n".join(agent) + "\n")
    parts.append(
        "RNICs are `[[agent.rnic]]` tables ([RDMA](../guide/agent.md#probes-over-rdma),\n"
        "[namespaces](../guide/agent.md#probes-from-another-network-namespace),\n"
        "[states](host-states.md#settings)), `--rnic rail=0,address=…` flags, or\n"
        f"`{AGENT_ENV_PREFIX}RNIC`. Overlay tables are an `[agent.overlay]` table\n"
        "([overlay](../guide/overlay.md)).\n"
    )
    return "\n".join(parts)


def _heading(title: str, table: str, prefix: str) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield f"TOML table `[{table}]`, environment `{prefix}…`."
    yield ""
    yield "| setting | default | allowed | meaning |"
    yield "|---|---|---|---|"


def _rows(cls: type, bounds: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    meanings = _meanings(cls)
    for field in fields(cls):
        low, high = bounds.get(field.name, (None, None))
        allowed = "text" if low is None else f"{low:.10g} to {high:,.10g}"
        yield f"| `{field.name}` | {_default(field)} | {allowed} | {meanings[field.name]} |"


def _default(field: "Field[Any]") -> str:
    if field.default is MISSING:
        return DEFAULTS[field.name]
    return f"`{field.default!r}`" if isinstance(field.default, str) else f"{field.default:g}"


def _meanings(cls: type) -> dict[str, str]:
    """Return what the Attributes section of a class's docstring says of each attribute."""
    section = inspect.getdoc(cls) or ""
    section = section.split("Attributes\n----------\n", 1)[1]
    meanings: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        if NAMES.fullmatch(line):
            names = line.split(", ")
        elif line.strip():
            for name in names:
                meanings[name] = f"{meanings.get(name, '')} {line.strip()}".strip()
    return meanings


def _agent_row(option: Option) -> str:
    allowed = f"{option.low:,} to {option.high:,}" if option.kind is int else "text"
    default = "–" if option.default is None else f"{option.default}"
    return f"| `{option.name}` | {default} | {allowed} | {option.doc} |"

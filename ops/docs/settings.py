"""`docs/reference/settings.md`: settings of the processes, from their declarations."""

from collections.abc import Iterable, Iterator
from typing import Final

from localizer.config import HangsConfig, LocalizerConfig
from ops.bridge.config import BridgeSettings
from probers.collector.config import CollectConfig
from probers.config.settings import OPTIONS
from schemas.metrics.settings import MetricsConfig
from schemas.process.settings import Setting, settings_of
from skeleton_job.config import SkeletonConfig
from streams.config import WorkerConfig

INTRODUCTION: Final = """\
# Settings

<!-- Written by `python -m ops.docs` from the configuration classes of the processes. -->

Sources, in order of precedence: flag, environment variable, the process's table in the TOML file
(`--config FILE` or `SKELETONHUNTER_CONFIG`), default. A setting `some_name` is the flag
`--some-name` (`--metrics-listen` for `[metrics] listen`), and the variable `<prefix>SOME_NAME`.
A process with wrong settings names all of them and exits with code 2. The `[kafka]` table is
common to all processes and described in [Your own Kafka](../../README.md#your-own-kafka).
"""

# Values that depend on the machine.
DEFAULTS: Final = {"workers": "2, or 1 on a single core"}


def page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    for title, section, settings in (
        ("Stream worker", "worker", settings_of(WorkerConfig)),
        ("Skeleton job", "skeleton", settings_of(SkeletonConfig)),
        ("Localizer", "localizer", settings_of(LocalizerConfig)),
        ("Hang watcher", "hangs", settings_of(HangsConfig)),
        ("Bridge", "bridge", settings_of(BridgeSettings)),
        ("Metrics of all but the agent", "metrics", settings_of(MetricsConfig)),
        ("Agent", "agent", OPTIONS),
        ("Collector", "collect", settings_of(CollectConfig)),
    ):
        parts.append("\n".join(_table(title, section, settings)) + "\n")
    parts.append(
        "RNICs are `[[agent.rnic]]` tables ([RDMA](../guide/agent.md#probes-over-rdma),\n"
        "[namespaces](../guide/agent.md#probes-from-another-network-namespace),\n"
        "[states](host-states.md#settings)), `--rnic rail=0,address=…` flags, or\n"
        "`SKELETONHUNTER_AGENT_RNIC`. Overlay tables are an `[agent.overlay]` table\n"
        "([overlay](../guide/overlay.md)). Targets of the bridge are `[[bridge.target]]` tables\n"
        "([paging](../guide/paging.md)).\n"
    )
    return "\n".join(parts)


def _table(title: str, section: str, settings: Iterable[Setting]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield f"TOML table `[{section}]`, environment `SKELETONHUNTER_{section.upper()}_…`."
    yield ""
    yield "| setting | default | allowed | meaning |"
    yield "|---|---|---|---|"
    for one in settings:
        text = one.kind is str
        allowed = "text" if text else f"{one.low:.10g} to {one.high:,.10g}"
        value = (one.default or "–") if text else f"{one.default:g}"
        yield f"| `{one.name}` | {DEFAULTS.get(one.name, value)} | {allowed} | {one.doc} |"

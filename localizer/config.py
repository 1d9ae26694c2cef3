"""Settings of the localizer: flags before environment before the `[localizer]` table."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from localizer.config_core import CoreConfig
from localizer.units import SECOND_NS
from schemas.connection import ConfigError

ENV_PREFIX: Final = "SKELETONHUNTER_LOCALIZER_"
# name → (least, greatest)
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "confidence": (0.5, 0.999),
    "min_flows": (1, 1000),
    "resolve_s": (1, 600),
    "flap_s": (0, 3600),
    "lookback_s": (60, 86_400),
    "stall_s": (5, 3600),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalizerConfig:
    """Settings as an operator writes them; bounds in `BOUNDS`.

    Attributes
    ----------
    confidence
        Share of the belief from which a verdict is decided.
    min_flows
        Bad 5-tuples that a fault needs at once; fewer must last longer.
    resolve_s
        Event time without evidence after which a fault is resolved.
    flap_s
        A fault that returns within this time is the same fault.
    lookback_s
        Event time read again at a start. Longer than agents take to trace every
        path anew (`trace_refresh_s`, 300 s and a quarter), else paths are unknown.
    stall_s
        The process ends when it reads nothing for so long though there is something.
    """

    confidence: float = 0.9
    min_flows: int = 3
    resolve_s: float = 3.0
    flap_s: float = 60.0
    lookback_s: float = 600.0
    stall_s: float = 30.0

    def core(self, cluster: str) -> CoreConfig:
        """Return what the core decides by."""
        return CoreConfig(
            cluster=cluster,
            confidence=self.confidence,
            min_flows=self.min_flows,
            resolve_ns=round(self.resolve_s * SECOND_NS),
            flap_ns=round(self.flap_s * SECOND_NS),
        )


def build_config(flags: Mapping[str, Any], table: Mapping[str, Any]) -> LocalizerConfig:
    """Return the checked settings.

    Raises
    ------
    ConfigError
        Naming every setting that is unknown or out of bounds.
    """
    wrong = [
        f"[localizer] {name}: no such setting; there are {', '.join(BOUNDS)}"
        for name in table
        if name not in BOUNDS
    ]
    values: dict[str, Any] = {}
    for field in fields(LocalizerConfig):
        name = field.name
        given = flags.get(name)
        if given is None:
            given = os.environ.get(ENV_PREFIX + name.upper(), table.get(name))
        if given is None:
            continue
        low, high = BOUNDS[name]
        whole = isinstance(field.default, int)
        try:
            value = int(given) if whole else float(given)
        except (TypeError, ValueError):
            value = float("nan")
        if isinstance(given, bool) or not low <= value <= high:
            kind = "a whole number" if whole else "a number"
            wrong.append(f"{name}={given!r}: {kind} from {low:g} to {high:g}")
        else:
            values[name] = value
    if wrong:
        raise ConfigError("; ".join(wrong))
    return LocalizerConfig(**values)

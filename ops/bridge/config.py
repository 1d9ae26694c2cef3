"""Settings of the bridge: what is paged, and where to."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from ops.bridge.paging.labels import SEVERITIES, SILENCE_LABELS, Owner
from ops.bridge.paging.pager import PagerConfig
from schemas.process.files import read_file
from schemas.process.settings import ConfigError, read_values, setting, settings_of
from schemas.units import US_PER_S

T = TypeVar("T")

SECTION: Final = "bridge"
ALERTMANAGER: Final = "alertmanager"
PAGERDUTY: Final = "pagerduty"
WEBHOOK: Final = "webhook"
TYPES: Final = (ALERTMANAGER, PAGERDUTY, WEBHOOK)
STRUCTURED: Final = "structured"
BINARY: Final = "binary"
PAGERDUTY_URL: Final = "https://events.pagerduty.com/v2/enqueue"
# Keys of a [[bridge.target]] table beside name and type.
TARGET_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    ALERTMANAGER: ("url", "ca_file", "token_file", "token_env", "mirror_silences"),
    PAGERDUTY: ("url", "ca_file", "routing_key_file", "routing_key_env"),
    WEBHOOK: ("url", "ca_file", "mode", "secret_file", "secret_env", "token_file", "token_env"),
}
MAX_SECRET_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """Settings as an operator writes them."""

    least_severity: str = setting(
        "warning", "faults below it are not paged: " + ", ".join(SEVERITIES)
    )
    resolve_hold_s: float = setting(
        60, "how long a fault that resolved keeps its page, since it may come back", (0, 3600)
    )
    storm_faults: int = setting(
        5, "so many new faults within storm_window_s have pages of their own; more share one",
        (1, 1000),
    )  # fmt: skip
    storm_window_s: float = setting(60, "see storm_faults", (1, 3600))
    page_url: str = setting(
        "", "address of a fault's page for people; {fault_id} and {cluster} are filled in"
    )
    runbook_url: str = setting(
        "", "address of the first steps; {kind} is filled in; empty: no link"
    )
    resend_s: float = setting(
        60, "Alertmanager is told of every open page so often, and keeps it four times as long",
        (1, 600),
    )  # fmt: skip
    timeout_s: float = setting(10, "a target that has not answered by then is tried again", (1, 60))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    """Where pages or transitions go.

    Attributes
    ----------
    secret
        Of a webhook the key that signs, of PagerDuty the routing key; None: none.
    token
        Sent as `Authorization: Bearer`; None: none.
    ca_file
        Certificates that are trusted instead of the system's.
    mirror_silences
        Whether Alertmanager is told of silences.
    """

    name: str
    kind: str
    url: str
    mode: str = STRUCTURED
    secret: str | None = None
    token: str | None = None
    ca_file: str | None = None
    mirror_silences: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeConfig:
    """All settings, checked."""

    settings: BridgeSettings
    owners: tuple[Owner, ...] = ()
    targets: tuple[TargetConfig, ...] = ()

    def pager(self) -> PagerConfig:
        """Return what decides on pages."""
        given = self.settings
        return PagerConfig(
            least_severity=given.least_severity,
            hold_us=round(given.resolve_hold_s * US_PER_S),
            storm_faults=given.storm_faults,
            storm_us=round(given.storm_window_s * US_PER_S),
            owners=self.owners,
        )


def build_config(
    flags: Mapping[str, Any],
    table: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> BridgeConfig:
    """Return the checked settings from flags, environment and `[bridge]` table.

    Raises
    ------
    ConfigError
        Naming every setting that is unknown or cannot be used; never a secret.
    """
    wrong: list[str] = []
    env = os.environ if environment is None else environment
    values = read_values(
        settings_of(BridgeSettings), SECTION, flags=flags, environment=env, table=table,
        wrong=wrong, more_keys=("target", "owner"),
    )  # fmt: skip
    settings = BridgeSettings(**values)
    if settings.least_severity not in SEVERITIES:
        wrong.append(
            f"[{SECTION}] least_severity={settings.least_severity!r}: one of "
            f"{', '.join(SEVERITIES)}"
        )
    targets = _tables(table, "target", lambda t, where: _target(t, where, env, wrong), wrong)
    owners = _tables(table, "owner", lambda t, where: _owner(t, where, wrong), wrong)
    names = [target.name for target in targets]
    wrong += [
        f"[[{SECTION}.target]]: two have the name {n!r}" for n in {*names} if names.count(n) > 1
    ]
    if wrong:
        raise ConfigError("; ".join(wrong))
    return BridgeConfig(settings=settings, owners=tuple(owners), targets=tuple(targets))


def _tables(
    table: Mapping[str, Any],
    name: str,
    build: Callable[[Mapping[str, Any], str], T | None],
    wrong: list[str],
) -> list[T]:
    given = table.get(name, [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        wrong.append(f"[{SECTION}] {name} must be [[{SECTION}.{name}]] tables")
        return []
    built = (build(one, f"[[{SECTION}.{name}]] number {n}") for n, one in enumerate(given, 1))
    return [one for one in built if one is not None]


def _owner(table: Mapping[str, Any], where: str, wrong: list[str]) -> Owner | None:
    name = table.get("owner")
    patterns = {key: value for key, value in table.items() if key != "owner"}
    unknown = patterns.keys() - set(SILENCE_LABELS)
    if not isinstance(name, str) or not name:
        wrong.append(f"{where} has no owner")
    if unknown:
        there = ", ".join(SILENCE_LABELS)
        wrong.append(f"{where}: no label {', '.join(sorted(unknown))}; there are {there}")
    return Owner(name=str(name), patterns={k: str(v) for k, v in patterns.items()})


def _target(
    table: Mapping[str, Any], where: str, environment: Mapping[str, str], wrong: list[str]
) -> TargetConfig | None:
    kind, name = table.get("type"), table.get("name", table.get("type"))
    if kind not in TYPES:
        wrong.append(f"{where}: type={kind!r} must be one of {', '.join(TYPES)}")
        return None
    unknown = table.keys() - {"name", "type", *TARGET_KEYS[kind]}
    wrong.extend(
        f"{where} {key}: no such setting; there are name, {', '.join(TARGET_KEYS[kind])}"
        for key in sorted(unknown)
    )
    url = table.get("url", PAGERDUTY_URL if kind == PAGERDUTY else None)
    if not isinstance(url, str) or urlsplit(url).scheme not in {"http", "https"}:
        wrong.append(f"{where}: url must begin with https:// or http://")
    elif kind == PAGERDUTY and urlsplit(url).scheme != "https":
        wrong.append(f"{where}: url must begin with https://, since the routing key is sent")
    mode = table.get("mode", STRUCTURED)
    if mode not in {STRUCTURED, BINARY}:
        wrong.append(f"{where}: mode={mode!r} must be {STRUCTURED} or {BINARY}")
    mirror = table.get("mirror_silences", False)
    if not isinstance(mirror, bool):
        wrong.append(f"{where}: mirror_silences={mirror!r} must be true or false")
    key = "routing_key" if kind == PAGERDUTY else "secret"
    secret = _secret(table, key, where, environment, wrong)
    if kind == PAGERDUTY and secret is None:
        wrong.append(f"{where}: routing_key_file or routing_key_env is needed")
    return TargetConfig(
        name=str(name), kind=kind, url=str(url), mode=str(mode), secret=secret,
        token=_secret(table, "token", where, environment, wrong), ca_file=table.get("ca_file"),
        mirror_silences=bool(mirror),
    )  # fmt: skip


def _secret(
    table: Mapping[str, Any],
    key: str,
    where: str,
    environment: Mapping[str, str],
    wrong: list[str],
) -> str | None:
    """Return a secret of a file or a variable; it never stands in the settings themselves."""
    file, variable = table.get(f"{key}_file"), table.get(f"{key}_env")
    if file is not None and variable is not None:
        wrong.append(f"{where}: {key}_file or {key}_env, not both")
    found = ""
    if file is not None:
        try:
            found = read_file(Path(str(file)), MAX_SECRET_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no UTF-8"
            wrong.append(f"{where}: {key}_file {file}: {reason}")
            return None
    elif variable is not None:
        found = environment.get(str(variable), "")
    else:
        return None
    if not found:
        wrong.append(f"{where}: {key}_{'file' if file is not None else 'env'} is empty")
    return found or None

"""Settings of the bridge: all that is wrong at once, secrets from files or variables only."""

from pathlib import Path
from typing import Any

import pytest

from ops.bridge.config import PAGERDUTY_URL, build_config
from schemas.process.settings import ConfigError


def build(table: dict[str, Any], **environment: str) -> Any:
    """Return the settings of a table."""
    return build_config({}, table, environment)


def test_targets_owners_and_secrets(tmp_path: Path) -> None:
    """A file's line end is none of the secret; a name that is not given is the type."""
    (tmp_path / "key").write_text("routing\n")
    config = build(
        {
            "storm_faults": 9,
            "target": [
                {"type": "alertmanager", "url": "http://am:9093"},
                {"type": "pagerduty", "routing_key_file": str(tmp_path / "key")},
                {"type": "webhook", "name": "h", "url": "https://h", "secret_env": "HOOK"},
            ],
            "owner": [{"owner": "net", "layer": "UNDERLAY"}],
        },
        HOOK="s3",
    )
    am, duty, hook = config.targets
    assert (am.name, am.secret) == ("alertmanager", None)
    assert (duty.url, duty.secret) == (PAGERDUTY_URL, "routing")
    assert (hook.name, hook.secret) == ("h", "s3")
    assert config.pager().storm_faults == 9
    assert config.pager().owners[0].patterns == {"layer": "UNDERLAY"}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"target": [{"type": "mail", "url": "https://x"}]}, "type='mail' must be one of"),
        ({"target": [{"type": "webhook"}]}, "url must begin with https://"),
        ({"target": [{"type": "webhook", "url": "file:///etc/passwd"}]}, "url must begin with"),
        ({"target": [{"type": "pagerduty"}]}, "routing_key_file or routing_key_env is needed"),
        (
            {"target": [{"type": "pagerduty", "url": "http://x", "routing_key_env": "K"}]},
            "since the routing key is sent",
        ),
        ({"target": [{"type": "webhook", "url": "http://x", "secret": "s"}]}, "secret: no such"),
        ({"target": [{"type": "webhook", "url": "http://x", "mode": "odd"}]}, "mode='odd'"),
        ({"target": [{"type": "webhook", "url": "http://x", "secret_env": "NONE"}]}, "is empty"),
        (
            {"target": [{"type": "alertmanager", "url": "http://x", "mirror_silences": "yes"}]},
            "mirror_silences='yes' must be true or false",
        ),
        ({"target": {"type": "webhook"}}, r"must be \[\[bridge.target\]\] tables"),
        ({"target": [{"type": "webhook", "url": "http://x"}] * 2}, "two have the name 'webhook'"),
        ({"owner": [{"owner": "net", "colour": "red"}]}, "no label colour"),
        ({"owner": [{"layer": "HOST"}]}, "has no owner"),
        ({"least_severity": "awful"}, "one of info, warning, error, critical"),
        ({"resolve_hold_s": -1}, "resolve_hold_s"),
        ({"retry": 1}, "retry: no such setting"),
    ],
)
def test_what_is_wrong_is_named(table: dict[str, Any], said: str) -> None:
    """With the place and what there is."""
    with pytest.raises(ConfigError, match=said):
        build(table, K="key")


def test_no_error_says_a_secret(tmp_path: Path) -> None:
    """Only where it was looked for."""
    (tmp_path / "key").write_text("s3cret")
    target = {"type": "webhook", "url": "ftp://x", "secret_file": str(tmp_path / "key")}
    with pytest.raises(ConfigError) as error:
        build({"target": [target]})
    assert "s3cret" not in str(error.value)

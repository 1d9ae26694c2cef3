"""Every process's settings: bounds hold the defaults, sources have an order."""

import pytest

from localizer.config import LocalizerConfig
from probers.config.settings import OPTIONS
from schemas.process import settings
from schemas.process.settings import ConfigError, Setting
from skeleton_job.config import SkeletonConfig
from streams.config import WorkerConfig

ALL = {
    "agent": OPTIONS,
    **{
        name: settings.settings_of(kind)
        for name, kind in (
            ("worker", WorkerConfig),
            ("skeleton", SkeletonConfig),
            ("localizer", LocalizerConfig),
        )
    },
}
NUMBERS = [(name, one) for name, found in ALL.items() for one in found if one.kind is not str]


@pytest.mark.parametrize(("process", "one"), NUMBERS)
def test_bounds_hold_the_default(process: str, one: Setting) -> None:
    """No default is refused by its own check, and a flag can say it."""
    assert one.low <= one.default <= one.high
    assert one.doc
    wrong: list[str] = []
    values = settings.read_values(
        (one,), process, flags={one.name: f"{one.default}"}, environment={}, table={}, wrong=wrong
    )
    assert values == {one.name: one.default}
    assert not wrong


@pytest.mark.parametrize("raw", [True, "soon", [3], "nan", "inf", "1e999"])
def test_what_is_no_number_is_refused(raw: object) -> None:
    """With the source and the bounds."""
    with pytest.raises(ConfigError, match=r"\[localizer\] min_flows=.*: a whole number from 1 to"):
        settings.build_config(
            LocalizerConfig, "localizer", flags={}, table={"min_flows": raw}, environment={}
        )


def test_an_empty_source_gives_way_to_the_next() -> None:
    """A variable that a deployment leaves empty is not given."""
    found = settings.build_config(
        WorkerConfig,
        "worker",
        flags={"group": ""},
        environment={"SKELETONHUNTER_WORKER_STALL_S": ""},
        table={"stall_s": 60, "log_level": "DEBUG"},
    )
    assert (found.group, found.stall_s) == (WorkerConfig().group, 60)

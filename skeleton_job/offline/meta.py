"""Optional metadata beside a table of counters: line rate, GPUs, counter width, jobs.

In: a JSON document. Out: a checked `Meta`, which names the jobs of the table's RNICs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from skeleton_job.job import Job, Rnic
from skeleton_job.series.rates import MAX_RATE_BYTES_PER_S

KEYS: Final = ("link_gbps", "gpus_per_host", "counter", "counter.bits", "pod_index", "tasks")
TASK_KEYS: Final = ("task", "gpus", "rnics")
# Factor above the line rate: bursts are shorter than ticks and clocks jitter.
HEADROOM: Final = 1.5
UNNAMED: Final = "task0"

Places = Sequence[tuple[str, int]]


class MetaError(ValueError):
    """Metadata that cannot be used; the message names every error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMeta:
    """A job: its GPUs and its RNICs, None where unknown."""

    task_id: str
    gpus: int | None = None
    rnics: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Checked metadata; `warnings` says which keys are not used."""

    link_gbps: float | None = None
    gpus_per_host: int | None = None
    counter_bits: int | None = None
    pod_index: Mapping[str, int] = field(default_factory=dict)
    tasks: tuple[TaskMeta, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def max_rate_bytes_per_s(self) -> float:
        """A higher rate between two readings is a reset."""
        if self.link_gbps is None:
            return MAX_RATE_BYTES_PER_S
        return HEADROOM * self.link_gbps * 1e9 / 8

    def jobs(self, there: Places) -> list[Job]:
        """Return the jobs; RNICs that no job names belong to the job whose RNICs are not given."""
        named = {rnic for task in self.tasks for rnic in task.rnics or ()}
        rest = [rnic for rnic in there if rnic not in named]
        jobs = []
        for task in self.tasks or (TaskMeta(task_id=UNNAMED),):
            places = rest if task.rnics is None else task.rnics
            hosts = len({host for host, _ in places})
            gpus = task.gpus
            if gpus is None and self.gpus_per_host is not None:
                gpus = self.gpus_per_host * hosts
            rnics = tuple(
                Rnic(
                    endpoint_id=f"{host}/r{rail}",
                    container_id=self._container(host),
                    host=host,
                    rail=rail,
                )
                for host, rail in places
            )
            jobs.append(Job(task_id=task.task_id, rnics=rnics, gpus=gpus))
        return jobs

    def _container(self, host: str) -> str:
        index = self.pod_index.get(host)
        return host if index is None else f"pod{index}"


def parse_meta(content: Any) -> Meta:
    """Check a JSON document.

    Hosts may be named by numbers or by text. Keys that are not known are not used.

    Raises
    ------
    MetaError
        Naming each wrong value with its key and bounds.
    """
    if not isinstance(content, dict):
        raise MetaError("meta must be a JSON object")
    wrong: list[str] = []
    warnings = [
        f"{k}: not used; known keys are {', '.join(KEYS)}" for k in content if k not in KEYS
    ]

    def number(name: str, value: Any, low: float, high: float, *, whole: bool) -> Any:
        if value is None:
            return None
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not fits or not low <= value <= high:
            kind = "whole number" if whole else "number"
            wrong.append(f"{name}={value!r}: a {kind} from {low:g} to {high:g}")
            return None
        return value

    counter = content.get("counter")
    if counter is not None and not isinstance(counter, dict):
        wrong.append(f"counter={counter!r}: an object with bits")
        counter = None
    bits = content.get("counter.bits", (counter or {}).get("bits"))
    pods = content.get("pod_index") or {}
    if not isinstance(pods, dict):
        wrong.append(f"pod_index={pods!r}: an object host → index")
        pods = {}
    index = {str(h): number(f"pod_index[{h!r}]", i, 0, 2**31, whole=True) for h, i in pods.items()}
    tasks = content.get("tasks") or []
    if not isinstance(tasks, list):
        wrong.append(f"tasks={tasks!r}: a list")
        tasks = []
    meta = Meta(
        link_gbps=number("link_gbps", content.get("link_gbps"), 0.1, 10_000, whole=False),
        gpus_per_host=number("gpus_per_host", content.get("gpus_per_host"), 1, 1024, whole=True),
        counter_bits=number("counter.bits", bits, 8, 64, whole=True),
        pod_index={h: i for h, i in index.items() if i is not None},
        tasks=tuple(_task(i, t, wrong, warnings) for i, t in enumerate(tasks)),
        warnings=tuple(warnings),
    )
    if sum(t.rnics is None for t in meta.tasks) > 1:
        wrong.append("tasks: at most one may leave its rnics open")
    if wrong:
        raise MetaError("; ".join(wrong))
    return meta


def _task(position: int, value: Any, wrong: list[str], warnings: list[str]) -> TaskMeta:
    name = f"tasks[{position}]"
    if not isinstance(value, dict):
        wrong.append(f"{name}={value!r}: an object with {', '.join(TASK_KEYS)}")
        return TaskMeta(task_id=name)
    warnings += [
        f"{name}.{key}: not used; known keys are {', '.join(TASK_KEYS)}"
        for key in value
        if key not in TASK_KEYS
    ]
    gpus = value.get("gpus")
    if gpus is not None and (not isinstance(gpus, int) or isinstance(gpus, bool) or gpus < 1):
        wrong.append(f"{name}.gpus={gpus!r}: a whole number from 1, or null")
        gpus = None
    rnics = value.get("rnics")
    places: list[tuple[str, int]] = []
    for rnic in rnics if isinstance(rnics, list) else ():
        match rnic:
            case [str() | int() as host, int() as rail] if not isinstance(host, bool):
                places.append((str(host), rail))
            case _:
                wrong.append(f"{name}.rnics holds {rnic!r}: pairs of host and rail")
                break
    if rnics is not None and not isinstance(rnics, list):
        wrong.append(f"{name}.rnics={rnics!r}: a list of [host, rail], or null")
    return TaskMeta(
        task_id=str(value.get("task", name)),
        gpus=gpus,
        rnics=None if rnics is None else tuple(dict.fromkeys(places)),
    )

"""The skeleton job's process: `python -m skeleton_job`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import codec_for
from schemas.metrics.exposition import exposed
from schemas.metrics.settings import run_exposed
from schemas.process import memory
from schemas.process.command import Command
from schemas.process.ending import end_with
from schemas.process.eventlog import EventLog
from schemas.process.health import Health
from schemas.process.settings import settings_of
from schemas.process.signals import call_on_stop
from schemas.units import SECOND_NS
from schemas.version import VERSION
from skeleton_job.config import SECTION, SkeletonConfig, build_config
from skeleton_job.core import SkeletonCore
from skeleton_job.edge.exposed import Exposed
from skeleton_job.edge.service import Service
from skeleton_job.series.columns import warm_kernel

COMMAND: Final = Command(
    prog="skeletonhunter skeleton run",
    section=SECTION,
    description="""\
Infer the traffic skeletons of training jobs from their RNICs' counters, and keep
the ping lists of all agents.

A new job (task.v1) gets its basic list at once: in each rail the mesh of a small
job, or few peers that cover its likely layouts. Counters (rnic.counters.v1) then
say which pairs really talk; when that is sure, they replace the basic list. Run two
processes for a cluster, of one consumer group: one leads, the other stands by and
takes over within ten seconds when the first is gone.
""",
    epilog="""\
example:
  skeletonhunter skeleton run --bootstrap 127.0.0.1:9092 --interval-s 10 --window-s 40

exit codes: 0 stopped, 2 wrong settings, 3 no broker, topics or schema registry
""",
    settings=settings_of(SkeletonConfig),
)


def _start(settings: KafkaSettings, config: SkeletonConfig, listen: str) -> int:
    memory.allocate_by_page()
    codec = codec_for(settings)
    core = SkeletonCore(
        settings.cluster, config.lists(), config.inference(), limits=config.limits(),
        producer_version=VERSION,
    )  # fmt: skip
    look_back_ns = round((config.window_s + config.interval_s) * SECOND_NS)
    service = Service(settings, core, codec, look_back_ns, workers=config.workers)
    call_on_stop(service.stop)
    # Seconds after an installation; not while Kafka waits.
    warm_kernel()
    log = EventLog(SECTION)
    log.info("skeleton.started", cluster=settings.cluster, **asdict(config))
    health = Health(lambda: service.counts.lag.polled_s, service.waits_for)
    with exposed(listen, SECTION, Exposed(service).families, health, log):
        service.run()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service until SIGTERM or SIGINT; return the exit code."""
    return run_exposed(COMMAND, arguments, build_config, _start)


if __name__ == "__main__":
    end_with(main)

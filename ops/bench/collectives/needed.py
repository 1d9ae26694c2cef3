"""What a part of the bench needs of a machine beside the project: PyTorch, JAX, a whole real job.

`make bench-collectives` goes on with the other parts where it is not there.
"""

from ops.bench.rig.report import Say
from ops.lab.errors import LabUsageError
from ops.lab.fault_kinds import NETNS_LAB
from ops.lab.frameworks import TORCH, Framework, job_python
from ops.lab.kind import LAB_KINDS


def no_framework(framework: Framework = TORCH) -> str | None:
    """Return why no Python here has a framework; None if one has it."""
    try:
        job_python(None, framework)
    except LabUsageError as error:
        return str(error)
    return None


def lacks_torch(say: Say) -> bool:
    """Return whether there is no PyTorch here, and say so."""
    return _told(no_framework(), "no PyTorch here", say)


def lacks_job(say: Say, framework: Framework = TORCH) -> bool:
    """Return whether no real job can train in a lab of namespaces, and say why.

    It needs root, what a lab of namespaces needs of the kernel, and the framework.
    """
    lacking = LAB_KINDS[NETNS_LAB].missing() or no_framework(framework)
    return _told(lacking, "no real job here", say)


def _told(lacking: str | None, what: str, say: Say) -> bool:
    if lacking is not None:
        say(f"{what}: {lacking}")
    return lacking is not None

"""Where NCCL's own sources are, by what a rank's environment says."""

import pytest

from probers.collectives.nccl_environment import NcclEnvironment, nccl_environment


def test_without_a_word_there_is_ras_and_a_ring() -> None:
    """Where NCCL and the plugin have them by themselves; a log is written if one asks for it."""
    assert nccl_environment({}) == NcclEnvironment()
    assert nccl_environment({"SKELETONHUNTER_RING_DIR": "/shm/r"}).ring_folder == "/shm/r"
    assert nccl_environment({"HOSTNAME": "pod-1"}).host_name == "pod-1"


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        ({}, None),
        ({"NCCL_INSPECTOR_ENABLE": "1"}, "nccl-inspector-unknown-jobid"),
        ({"NCCL_INSPECTOR_ENABLE": "1", "SLURM_JOBID": "12_3"}, "nccl-inspector-12"),
        ({"NCCL_INSPECTOR_ENABLE": "1", "NCCL_INSPECTOR_DUMP_DIR": "/d"}, "/d"),
        ({"NCCL_INSPECTOR_ENABLE": "1", "NCCL_INSPECTOR_PROM_DUMP": "1"}, None),
        ({"NCCL_INSPECTOR_ENABLE": "0", "NCCL_INSPECTOR_DUMP_DIR": "/d"}, None),
    ],
)
def test_the_inspectors_folder(given: dict[str, str], folder: str | None) -> None:
    """Prometheus' files are for others."""
    assert nccl_environment(given).inspector_folder == folder


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({"NCCL_RAS_ADDR": "localhost:30000"}, ("127.0.0.1", 30_000)),
        ({"NCCL_RAS_ADDR": "127.0.0.5"}, ("127.0.0.5", 28_028)),
        ({"NCCL_RAS_ADDR": "[::1]:30000"}, ("::1", 30_000)),
        ({"NCCL_RAS_ENABLE": "0"}, None),
        # A job may not have the collector connect to others.
        ({"NCCL_RAS_ADDR": "10.0.0.1:28028"}, None),
        ({"NCCL_RAS_ADDR": "db.example:5432"}, None),
        ({"NCCL_RAS_ADDR": "localhost:22"}, None),
        ({"NCCL_RAS_ADDR": "localhost:99999"}, None),
        ({"NCCL_RAS_ADDR": "localhost.evil:30000"}, None),
    ],
)
def test_ras_is_asked_on_the_loopback_only(
    given: dict[str, str], address: tuple[str, int] | None
) -> None:
    """And not at the ports of the host's own services."""
    assert nccl_environment(given).ras_address == address

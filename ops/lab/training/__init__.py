"""A real training job over gloo, of PyTorch or of JAX: run by a Python that has it."""

from typing import Final

_RANKS: Final = {
    "OMP_NUM_THREADS": "1",
    # Room for the environment of a rank, which is forked from that process (`announced.py`).
    "SKELETONHUNTER_JOB_ROOM": "-" * 1_024,
}
ENVIRONMENT: Final = {
    # Of the processes that import PyTorch: the recorder reads its length once.
    "TORCH_FR_BUFFER_SIZE": "400",
    **_RANKS,
}
# Longer than a test of a fault: a job that gave up would look like one that was ended. Without,
# XLA ends an all-reduce after thirty seconds, and the whole process a little later.
JAX_TIMEOUT_S: Final = 1_800
JAX_ENVIRONMENT: Final = {
    "JAX_PLATFORMS": "cpu",
    # One device for each rank, and one thread for its arithmetic: many ranks share the machine.
    "XLA_FLAGS": f"--xla_cpu_collective_timeout_seconds={JAX_TIMEOUT_S} "
    f"--xla_cpu_collective_call_terminate_timeout_seconds={JAX_TIMEOUT_S} "
    "--xla_cpu_multi_thread_eigen=false",
    **_RANKS,
}

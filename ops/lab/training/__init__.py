"""A real training job of PyTorch over gloo: run by a Python that has it."""

from typing import Final

# Of the processes that import PyTorch: the recorder reads its length once.
ENVIRONMENT: Final = {
    "TORCH_FR_BUFFER_SIZE": "400",
    "OMP_NUM_THREADS": "1",
    # Room for the environment of a rank, which is forked from that process (`announced.py`).
    "SKELETONHUNTER_JOB_ROOM": "-" * 1_024,
}

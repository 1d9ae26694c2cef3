"""What NCCL calls operations and types, as PyTorch's recorder calls them; texts of a job."""

from typing import Any, Final

MAX_TEXT: Final = 256
_NAMES: Final = {
    "AllReduce": "all_reduce", "AllGather": "all_gather", "AllGatherV": "all_gather_v",
    "ReduceScatter": "reduce_scatter", "Broadcast": "broadcast", "Reduce": "reduce",
    "AlltoAll": "all_to_all", "Send": "send", "Recv": "recv", "Scatter": "scatter",
    "Gather": "gather",
}  # fmt: skip
# Bytes of NCCL's types.
_WIDTHS: Final = {
    "Int8": 1, "Uint8": 1, "Int32": 4, "Uint32": 4, "Int64": 8, "Uint64": 8, "Float16": 2,
    "Float32": 4, "Float64": 8, "Bfloat16": 2, "Float8e4m3": 1, "Float8e5m2": 1,
}  # fmt: skip


def operation_name(func: str) -> str:
    """Return the name of an operation.

    >>> operation_name("ReduceScatter")
    'reduce_scatter'
    """
    return _NAMES.get(func, func.lower())


def type_name(datatype: str) -> str:
    """Return the name of a type, without the library's."""
    return datatype.removeprefix("nccl")


def width_of(datatype: str) -> int | None:
    """Return the bytes of a type by its name; None: not known."""
    return _WIDTHS.get(datatype)


def plain_text(text: str) -> str:
    """Return a text that cannot steer a terminal, of a bounded length."""
    return "".join(c if c.isprintable() else "?" for c in text[:MAX_TEXT])


def text_of(value: Any) -> str:
    """Return what a document holds as `plain_text`, "" where it is no text."""
    return plain_text(value) if isinstance(value, str) else ""

"""The C code of `schemas.record_writer`."""

from typing import Any

class RecordWriter:
    def __new__(cls, plan: tuple[Any, ...], /) -> RecordWriter: ...
    def write(self, head: bytes, record: object, /) -> bytes | None: ...

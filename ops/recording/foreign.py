"""Schemas of container files that others wrote: which of them are read at all.

A schema decides how much work and memory a byte of the file makes. Those that could make it
without end are refused before a record is read.
"""

from typing import Any, Final

# The contract's largest has some hundred types, five deep.
MAX_TYPES: Final = 2_000
MAX_DEPTH: Final = 32
_NAMED: Final = ("record", "enum", "fixed", "error")


def check_schema(schema: Any) -> None:
    """Check a parsed JSON schema.

    Raises
    ------
    ValueError
        If it is nested deep, very large, contains itself, or has arrays of items (or records)
        without any bytes, of which a few bytes may claim any number.
    """
    if _Check().least_bytes(schema, 0) == 0:
        raise ValueError("records without any bytes")


class _Check:
    def __init__(self) -> None:
        self._types = 0
        # Least number of bytes of each named type; None while it is being looked at.
        self._named: dict[str, int | None] = {}

    def least_bytes(self, node: Any, depth: int) -> int:
        """Return how many bytes a value has at least."""
        self._types += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"a schema nested deeper than {MAX_DEPTH}")
        if self._types > MAX_TYPES:
            raise ValueError(f"a schema of more than {MAX_TYPES} types")
        if isinstance(node, list):
            for branch in node:
                self.least_bytes(branch, depth + 1)
            return 1
        if isinstance(node, str):
            return self._of_name(node)
        if not isinstance(node, dict):
            raise ValueError(f"no schema: {node!r:.60}")
        kind = node.get("type")
        if not isinstance(kind, str):
            return self.least_bytes(kind, depth + 1)
        name = node.get("name")
        short = name.rpartition(".")[2] if isinstance(name, str) and kind in _NAMED else None
        if short is not None:
            self._named[short] = None
        least = self._of_type(kind, node, depth)
        if short is not None:
            self._named[short] = least
        return least

    def _of_name(self, name: str) -> int:
        if name == "null":
            return 0
        least = self._named.get(name.rpartition(".")[2], 1)
        if least is None:
            raise ValueError(f"a schema in which {name} contains itself")
        return least

    def _of_type(self, kind: str, node: dict[str, Any], depth: int) -> int:
        if kind in ("record", "error"):
            fields = node.get("fields")
            if not isinstance(fields, list):
                raise ValueError("a record without fields")
            return sum(
                self.least_bytes(field.get("type") if isinstance(field, dict) else None, depth + 1)
                for field in fields
            )
        if kind == "array":
            if self.least_bytes(node.get("items"), depth + 1) == 0:
                raise ValueError("an array of items without any bytes")
            return 1
        if kind == "map":
            self.least_bytes(node.get("values"), depth + 1)
            return 1
        if kind == "fixed":
            size = node.get("size")
            return size if type(size) is int and size >= 0 else 0
        return self._of_name(kind)

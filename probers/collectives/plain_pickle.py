"""Reads pickles that hold plain values only, and runs nothing.

A pickle is a program. This reader knows the opcodes that make None, booleans, numbers, texts,
lists, tuples and dictionaries; at any other, those that call something first of all, it stops.
`pickle.Unpickler` with a `find_class` that refuses does not do: a memo index or a length of four
bytes makes it allocate gigabytes before anything was looked up.

Opcodes are those of `pickletools.opcodes` up to protocol 5.
"""

import pickle
import struct
from collections.abc import Callable
from typing import Any, Final

# A value takes up to a hundred bytes of memory: all of them under a gigabyte. One operation of a
# dump with its stack is some 80 values, so that rings of 100,000 operations are read.
MAX_VALUES: Final = 8_000_000
# A dump nests five deep.
MAX_DEPTH: Final = 64
INT64_BYTES: Final = 8

_CONSTANTS: Final = {
    pickle.NONE[0]: None, pickle.NEWTRUE[0]: True, pickle.NEWFALSE[0]: False,
}  # fmt: skip
# Opcode -> how many bytes say the length of the text that follows.
_TEXTS: Final = {
    pickle.BINUNICODE[0]: 4, pickle.SHORT_BINUNICODE[0]: 1, pickle.BINUNICODE8[0]: 8,
}  # fmt: skip
_INTEGERS: Final = {
    pickle.BININT[0]: (4, True), pickle.BININT1[0]: (1, False), pickle.BININT2[0]: (2, False),
}  # fmt: skip
# A frame's length and a protocol's number say nothing that is needed: opcode -> bytes to skip.
_SKIPPED: Final = {pickle.PROTO[0]: 1, pickle.FRAME[0]: 8}
_TUPLES: Final = {pickle.TUPLE1[0]: 1, pickle.TUPLE2[0]: 2, pickle.TUPLE3[0]: 3}
_BINGET: Final = pickle.BINGET[0]
# Opcode -> what it makes, and whether of the values since the last mark.
_COLLECTIONS: Final[dict[int, tuple[type, bool]]] = {
    pickle.EMPTY_DICT[0]: (dict, False), pickle.DICT[0]: (dict, True),
    pickle.EMPTY_LIST[0]: (list, False), pickle.LIST[0]: (list, True),
    pickle.EMPTY_TUPLE[0]: (tuple, False), pickle.TUPLE[0]: (tuple, True),
}  # fmt: skip
_PUTS: Final = {pickle.BINPUT[0]: 1, pickle.LONG_BINPUT[0]: 4}
_GETS: Final = {pickle.BINGET[0]: 1, pickle.LONG_BINGET[0]: 4}
_CALLS: Final = {
    code[0]: name
    for name, code in {
        "GLOBAL": pickle.GLOBAL, "STACK_GLOBAL": pickle.STACK_GLOBAL, "REDUCE": pickle.REDUCE,
        "BUILD": pickle.BUILD, "INST": pickle.INST, "OBJ": pickle.OBJ, "NEWOBJ": pickle.NEWOBJ,
        "NEWOBJ_EX": pickle.NEWOBJ_EX, "PERSID": pickle.PERSID, "BINPERSID": pickle.BINPERSID,
        "EXT1": pickle.EXT1, "EXT2": pickle.EXT2, "EXT4": pickle.EXT4,
    }.items()
}  # fmt: skip


class PickleError(ValueError):
    """Bytes that are no pickle of plain values; the message says why."""


def load_plain(content: bytes, max_values: int = MAX_VALUES) -> Any:
    """Return the value of a pickle.

    Values that the pickle holds once and names several times are one object here as well.

    Raises
    ------
    PickleError
        If it is cut short or damaged, has more than `max_values` values, nests deeper than
        `MAX_DEPTH`, holds itself, or would call something.
    """
    try:
        return _Machine(content, max_values).run()
    except IndexError as error:
        raise PickleError("the pickle is cut short or damaged") from error
    except UnicodeDecodeError as error:
        raise PickleError("a text in the pickle is not UTF-8") from error


class _Machine:
    """The stack machine of pickles, as far as plain values need it."""

    def __init__(self, content: bytes, max_values: int) -> None:
        self._content = content
        self._at = 0
        self._max_values = max_values
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._done: dict[int, Callable[[int], None]] = {
            **dict.fromkeys(_GETS, self._get),
            **dict.fromkeys(_PUTS, self._put),
            **dict.fromkeys(_TEXTS, self._text),
            **dict.fromkeys(_INTEGERS, self._integer),
            **dict.fromkeys(_CONSTANTS, self._constant),
            **dict.fromkeys(_SKIPPED, self._skip),
            **dict.fromkeys(_TUPLES, self._short_tuple),
            **dict.fromkeys(_COLLECTIONS, self._collection),
            pickle.LONG1[0]: self._long,
            pickle.BINFLOAT[0]: self._float,
            pickle.MEMOIZE[0]: self._memoize,
            pickle.MARK[0]: self._mark,
            pickle.APPEND[0]: lambda _code: self._extend(self._pop(1)),
            pickle.APPENDS[0]: lambda _code: self._extend(self._pop_to_mark()),
            pickle.SETITEM[0]: lambda _code: self._update(self._pop(2)),
            pickle.SETITEMS[0]: lambda _code: self._update(self._pop_to_mark()),
        }

    def run(self) -> Any:
        """Do one opcode after the other up to the end of the pickle."""
        content, stack, memo, done = self._content, self._stack, self._memo, self._done
        size, values = len(content), 0
        while self._at < size:
            code = content[self._at]
            self._at += 1
            values += 1
            if values > self._max_values:
                raise PickleError(f"the pickle holds more than {self._max_values:,} values")
            if code == _BINGET and self._at < size and content[self._at] in memo:
                # Every other opcode of a dump: its keys.
                stack.append(memo[content[self._at]])
                self._at += 1
            elif code in done:
                done[code](code)
            elif code == pickle.STOP[0]:
                return self._result()
            elif code in _CALLS:
                raise PickleError(f"the pickle would run code ({_CALLS[code]}): refused")
            else:
                raise PickleError(f"opcode {code:#04x} is not one of plain values: refused")
        raise PickleError("the pickle is cut short")

    def _take(self, length: int) -> bytes:
        piece = self._content[self._at : self._at + length]
        if len(piece) != length:
            raise PickleError("the pickle is cut short")
        self._at += length
        return piece

    def _number(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _get(self, code: int) -> None:
        index = self._number(_GETS[code])
        if index not in self._memo:
            raise PickleError("the pickle names a value that it does not hold")
        self._stack.append(self._memo[index])

    def _put(self, code: int) -> None:
        self._memo[self._number(_PUTS[code])] = self._stack[-1]

    def _memoize(self, _code: int) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _text(self, code: int) -> None:
        self._stack.append(self._take(self._number(_TEXTS[code])).decode())

    def _integer(self, code: int) -> None:
        width, signed = _INTEGERS[code]
        self._stack.append(int.from_bytes(self._take(width), "little", signed=signed))

    def _long(self, _code: int) -> None:
        width = self._number(1)
        if width > INT64_BYTES:
            raise PickleError("the pickle holds an integer of more than 64 bits")
        self._stack.append(int.from_bytes(self._take(width), "little", signed=True))

    def _float(self, _code: int) -> None:
        self._stack.append(struct.unpack(">d", self._take(8))[0])

    def _constant(self, code: int) -> None:
        self._stack.append(_CONSTANTS[code])

    def _skip(self, code: int) -> None:
        self._take(_SKIPPED[code])

    def _mark(self, _code: int) -> None:
        self._marks.append(len(self._stack))

    def _short_tuple(self, code: int) -> None:
        self._stack.append(tuple(self._pop(_TUPLES[code])))

    def _collection(self, code: int) -> None:
        make, filled = _COLLECTIONS[code]
        items = self._pop_to_mark() if filled else []
        if make is dict:
            self._stack.append({})
            self._update(items)
        else:
            self._stack.append(make(items))

    def _pop(self, count: int) -> list[Any]:
        floor = self._marks[-1] if self._marks else 0
        if len(self._stack) - floor < count:
            raise PickleError("the pickle takes values that it does not hold")
        taken = self._stack[-count:]
        del self._stack[-count:]
        return taken

    def _pop_to_mark(self) -> list[Any]:
        if not self._marks:
            raise PickleError("the pickle ends a collection that it did not begin")
        begin = self._marks.pop()
        taken = self._stack[begin:]
        del self._stack[begin:]
        return taken

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise PickleError("the pickle appends to what is no list")
        target.extend(items)

    def _update(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise PickleError("the pickle sets items of what is no dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Nothing else is a key of a dump; a deep tuple would be hashed by recursion.
            if type(key) is not str and type(key) is not int:
                raise PickleError("a key in the pickle is neither text nor integer")
            target[key] = value

    def _result(self) -> Any:
        if len(self._stack) != 1 or self._marks:
            raise PickleError("the pickle does not end with one value")
        _check_depth(self._stack[0])
        return self._stack[0]


def _check_depth(value: Any) -> None:
    """Refuse what nests too deep, or holds itself.

    Goes through each collection once for each depth at which it is reached: a value that is
    named many times costs no more than `MAX_DEPTH` times its size.
    """
    level: dict[int, Any] = {id(value): value}
    for _ in range(MAX_DEPTH):
        below: dict[int, Any] = {}
        for item in level.values():
            held = item.values() if type(item) is dict else item
            for inner in held if type(item) in {dict, list, tuple} else ():
                if type(inner) in {dict, list, tuple}:
                    below[id(inner)] = inner
        if not below:
            return
        level = below
    raise PickleError(f"the pickle nests deeper than {MAX_DEPTH}")

"""Reads the cluster's probe keys from a file.

Keys are in a file so that they appear on no command line and in no environment.
"""

import os
from pathlib import Path
from typing import Final

from probers.packet import MAX_KEYS, MIN_KEY_BYTES
from schemas.process.files import open_regular
from schemas.process.settings import ConfigError

# A key is a line of text; four of them are far below this.
MAX_FILE_BYTES: Final = 4_096
OTHERS: Final = 0o007


def read_keys(path: Path) -> tuple[bytes, ...]:
    """Return the keys of a file, one a line: the first seals, all are accepted.

    While keys change, the new one is added as second line everywhere, then moved to the
    first, then the old one is taken out. Lines that are empty or begin with # do not count.

    Raises
    ------
    ConfigError
        If the file cannot be read, is open to everybody, or holds no good key.
    """
    try:
        with open_regular(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"probe_key_file {path}: {error.strerror}") from error
    if mode & OTHERS:
        raise ConfigError(
            f"probe_key_file {path}: mode {mode & 0o777:o} lets everybody at it; chmod 600 "
            "(Kubernetes: defaultMode 0400)"
        )
    lines = [line.strip() for line in data.splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith(b"#"))
    if len(data) > MAX_FILE_BYTES or not 1 <= len(keys) <= MAX_KEYS:
        raise ConfigError(
            f"probe_key_file {path}: {len(data)} bytes with {len(keys)} keys; "
            f"1 to {MAX_KEYS} lines, {MAX_FILE_BYTES} bytes at most"
        )
    short = [number for number, key in enumerate(keys, 1) if len(key) < MIN_KEY_BYTES]
    if short:
        raise ConfigError(
            f"probe_key_file {path}: key {short[0]} has less than {MIN_KEY_BYTES} bytes; "
            "`openssl rand -hex 32` makes a good one"
        )
    return keys

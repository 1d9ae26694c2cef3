"""Lock files: what they hold, and that a damaged one is not half believed."""

import re
from importlib import resources

import pytest

from ops.broker.lock import APICURIO, KAFKA, parse_lock, read_lock

HASH = "0123456789abcdef" * 4


@pytest.mark.parametrize(("name", "least"), [(KAFKA, 45), (APICURIO, 1)])
def test_lock_files_are_whole(name: str, least: int) -> None:
    """Each line is an artifact with a hash; none names an address."""
    assert len(read_lock(name)) >= least
    text = (resources.files("ops.broker") / f"{name}.lock").read_text(encoding="utf-8")
    assert len(read_lock(name)) == len(text.splitlines())
    assert not re.search(r"https?:|//", text)


def test_kafka_is_the_version_that_is_promised() -> None:
    """Server and client are 4.3.1, with a logging backend that shows why a broker dies."""
    versions = {a.name: a.version for a in read_lock(KAFKA)}
    assert versions["kafka_2.13"] == versions["kafka-clients"] == "4.3.1"
    assert versions["log4j-slf4j-impl"] == versions["log4j-core"]


def test_coordinate_and_file_name() -> None:
    """Classifier and packaging are part of both."""
    plain, packed = parse_lock(
        f"# a comment\n\norg.a:thing:1.0 {HASH}\norg.a:app:2.0:all@tar.gz  {HASH}\n"
    )
    assert (plain.coordinate, plain.filename) == ("org.a:thing:1.0", "thing-1.0.jar")
    assert (packed.coordinate, packed.filename) == (
        "org.a:app:2.0:all@tar.gz",
        "app-2.0-all.tar.gz",
    )


@pytest.mark.parametrize(
    "line",
    [
        "org.a:thing:1.0",
        f"org.a:thing {HASH}",
        f"org.a:thing:1.0 {HASH[:-1]}",
        f"org.a:thing:1.0 {HASH.upper()}",
        f"../../etc:thing:1.0 {HASH} extra",
        f"org.a:../../thing:1.0 {HASH}",
    ],
)
def test_damaged_line_is_refused(line: str) -> None:
    """A line that is no artifact with a full hash is named by its number."""
    with pytest.raises(ValueError, match="line 2"):
        parse_lock(f"org.a:good:1.0 {HASH}\n{line}\n")


def test_two_lines_for_one_file_are_refused() -> None:
    """Two artifacts that would share a file name cannot both be verified."""
    with pytest.raises(ValueError, match=r"line 2 .* again"):
        parse_lock(f"org.a:thing:1.0 {HASH}\norg.b:thing:1.0 {HASH}\n")

"""Lock files: which artifacts a server consists of, and the SHA-256 of each.

One artifact per line: `group:artifact:version[:classifier][@packaging] sha256`.
No addresses: `jgo` knows where Maven artifacts live.
"""

import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

KAFKA: Final = "kafka-4.3.1"
APICURIO: Final = "apicurio-3.3.3"

_LINE: Final = re.compile(
    r"(?P<group>[\w.-]+):(?P<name>[\w.-]+):(?P<version>[\w.-]+)"
    r"(:(?P<classifier>[\w.-]+))?(@(?P<packaging>[\w.]+))? +(?P<sha256>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedArtifact:
    """One Maven artifact and the hash that its file must have."""

    group: str
    name: str
    version: str
    classifier: str = ""
    packaging: str = "jar"
    sha256: str

    @property
    def coordinate(self) -> str:
        """The artifact as a lock file names it."""
        classifier = f":{self.classifier}" if self.classifier else ""
        packaging = "" if self.packaging == "jar" else f"@{self.packaging}"
        return f"{self.group}:{self.name}:{self.version}{classifier}{packaging}"

    @property
    def filename(self) -> str:
        """Name of the file, as in a Maven repository."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.packaging}"


def parse_lock(text: str) -> tuple[LockedArtifact, ...]:
    """Parse the text of a lock file; empty lines and `#` comments are skipped.

    Raises
    ------
    ValueError
        If a line is not an artifact with its hash, or two lines share a file name.
    """
    artifacts: dict[str, LockedArtifact] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        if match is None:
            raise ValueError(f"line {number} of the lock file is no artifact with a hash: {line!r}")
        parts = {k: v for k, v in match.groupdict().items() if v is not None}
        artifact = LockedArtifact(**parts)
        if artifact.filename in artifacts:
            raise ValueError(f"line {number} of the lock file names {artifact.filename} again")
        artifacts[artifact.filename] = artifact
    return tuple(artifacts.values())


def read_lock(name: str) -> tuple[LockedArtifact, ...]:
    """Return the artifacts of a lock file of this package."""
    path = resources.files("ops.broker") / f"{name}.lock"
    return parse_lock(path.read_text(encoding="utf-8"))

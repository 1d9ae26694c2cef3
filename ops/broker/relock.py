"""Writes the lock files again: `python -m ops.broker.relock`, after a version was raised.

Resolves with `jgo`, downloads every artifact and hashes it. Read the difference
before committing it: from then on these bytes are trusted.
"""

import hashlib
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from ops.broker.lock import APICURIO, KAFKA

FOLDER: Final = Path(__file__).parent
KAFKA_ROOT: Final = "org.apache.kafka:kafka_2.13:4.3.1"
# Kafka's own dependencies bind slf4j to nothing: a broker that cannot start would not say why.
KAFKA_LOGGING: Final = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
APICURIO_ROOT: Final = ("io.apicurio", "apicurio-registry-app", "3.3.3", "all", "tar.gz")


def _line(artifact: Any) -> str:
    digest = hashlib.sha256(Path(artifact.resolve()).read_bytes()).hexdigest()
    classifier = f":{artifact.classifier}" if artifact.classifier else ""
    packaging = "" if artifact.packaging == "jar" else f"@{artifact.packaging}"
    version = artifact.version
    return f"{artifact.groupId}:{artifact.artifactId}:{version}{classifier}{packaging} {digest}"


def _write(name: str, artifacts: Iterable[Any]) -> None:
    with ThreadPoolExecutor(8) as pool:
        lines = sorted(pool.map(_line, artifacts))
    (FOLDER / f"{name}.lock").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{name}.lock: {len(lines)} artifacts")


def main() -> None:
    """Resolve, download, hash, write."""
    import jgo  # noqa: PLC0415 - heavy, and needed here only
    from jgo.maven import MavenContext  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        context = MavenContext(repo_cache=Path(folder), timeout=60)

        def fetched(g: str, a: str, v: str, c: str = "", packaging: str = "jar") -> Any:
            return context.project(g, a).at_version(v).artifact(c, packaging)

        jars = [
            fetched(a.groupId, a.artifactId, a.version, a.classifier, a.packaging)
            for a in jgo.resolve(KAFKA_ROOT)
        ]
        _write(KAFKA, [*jars, fetched(*KAFKA_LOGGING)])
        _write(APICURIO, [fetched(*APICURIO_ROOT)])


if __name__ == "__main__":
    main()

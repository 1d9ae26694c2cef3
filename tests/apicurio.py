"""The Apicurio schema registry as a child process, on loopback, in memory.

It speaks Confluent's API; the tests hold our framing and evolution to it.
"""

import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final, Self

from ops.broker.errors import BrokerError
from ops.broker.fetch import Progress, fetch
from ops.broker.jvm import GuardedJvm, JvmSpec, java
from ops.broker.lock import APICURIO
from ops.broker.ports import LOOPBACK, ClaimedPorts

CONFLUENT_API: Final = "/apis/ccompat/v7"
# Measured: 6 s on two idle cores.
READY_TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.1


class EmbeddedRegistry:
    """A registry that holds its schemas in memory, for tests.

    Examples
    --------
    >>> with EmbeddedRegistry() as registry:  # doctest: +SKIP
    ...     print(registry.url)
    http://127.0.0.1:21234/apis/ccompat/v7
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._jvm: GuardedJvm | None = None
        self._ports = ClaimedPorts()
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Root of Confluent's API; raises BrokerError before the start."""
        if self._jvm is None:
            raise BrokerError("the registry was not started")
        return f"http://{LOOPBACK}:{self._port}{CONFLUENT_API}"

    @property
    def pid(self) -> int | None:
        """Process id of the JVM."""
        return None if self._jvm is None else self._jvm.pid

    def start(self) -> str:
        """Fetch what is missing, unpack, start, wait until it answers; return the URL.

        Raises
        ------
        EmbeddedServerError
            If it cannot be fetched or does not start; the message says why.
        """
        (archive,) = fetch(APICURIO, progress=self._progress)
        folder = Path(tempfile.mkdtemp(prefix="skeletonhunter-registry-"))
        try:
            with tarfile.open(archive) as tar:
                # Python before 3.11.4 has no filters; the archive's digest has been checked.
                tar.extraction_filter = getattr(tarfile, "data_filter", None)
                tar.extractall(folder / "app")  # noqa: S202 - a pinned archive
            self._port = self._ports.claim()
            self._jvm = GuardedJvm(
                JvmSpec(
                    argv=self._command(folder, self._ports.claim()),
                    cwd=folder,
                    log=folder / "registry.log",
                    remove=folder,
                )
            )
            self._jvm.start()
            self._wait_ready(self._jvm)
        except BaseException:
            self.stop()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return self.url

    def stop(self) -> None:
        """End it and remove its files; harmless when it does not run."""
        jvm, self._jvm = self._jvm, None
        if jvm is not None:
            jvm.close()
        self._ports.release()

    def _command(self, folder: Path, management_port: int) -> list[str]:
        return [
            java(),
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            f"-Djava.io.tmpdir={folder}",
            f"-Dquarkus.http.host={LOOPBACK}",
            f"-Dquarkus.http.port={self._port}",
            # It listens on every interface by default.
            f"-Dquarkus.management.host={LOOPBACK}",
            f"-Dquarkus.management.port={management_port}",
            "-jar",
            str(folder / "app" / "quarkus-run.jar"),
        ]

    def _wait_ready(self, jvm: GuardedJvm) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._answers():
            code = jvm.exit_code()
            if code is not None:
                raise BrokerError(f"the registry ended with code {code}:\n{jvm.log_tail()}")
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"the registry did not answer within {READY_TIMEOUT_S:.0f} s:\n{jvm.log_tail()}"
                )
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        try:
            # An address of our own making, on loopback.
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

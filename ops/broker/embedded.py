"""Apache Kafka as a child process: one broker that is its own controller, on loopback."""

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from ops.broker import announcement, properties
from ops.broker.announcement import Announcement
from ops.broker.errors import BrokerError
from ops.broker.fetch import Progress, fetch
from ops.broker.jvm import GRACE_S, GuardedJvm, JvmSpec
from ops.broker.kafka_jvm import SERVER, format_storage, java_command
from ops.broker.lock import KAFKA
from ops.broker.ports import LOOPBACK, ClaimedPorts, is_free
from ops.broker.properties import Listeners, Login
from ops.broker.ready import wait_for_metadata

# Measured: 3 s on two idle cores; a laptop that is busy with tests needs more.
READY_TIMEOUT_S: Final = 90.0
# Writing what makes later starts quick takes the JVM 9 s at its end on two busy cores.
RECORD_GRACE_S: Final = 120.0
# Another program than ours can take a port before Kafka binds it.
START_ATTEMPTS: Final = 3


class EmbeddedKafka:
    """A real Kafka for tests, demo, benchmarks and `broker run`.

    Parameters
    ----------
    data_dir
        Where the data stays after the end; None: a temporary folder.
    port
        Port of the listener; None: a free one.
    announce
        Whether other commands should find it by `broker.json`.
    login
        A user; with it there is a second listener, `login_bootstrap`, and with an authority of
        clients' certificates a third, `certificate_bootstrap`.
    settings
        More broker settings, over ours.
    progress
        Sees the download, if there is one.
    record
        File to write what makes later starts quick; see `ops.broker.warm`.

    Examples
    --------
    >>> with EmbeddedKafka(announce=False) as kafka:  # doctest: +SKIP
    ...     print(kafka.bootstrap)
    127.0.0.1:24817
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        port: int | None = None,
        announce: bool = True,
        login: Login | None = None,
        settings: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        record: Path | None = None,
    ) -> None:
        self._data_dir = None if data_dir is None else data_dir.absolute()
        self._port = port
        self._announce = announce
        self._login = login
        self._settings = dict(settings or {})
        self._progress = progress
        self._record = record
        self._jvm: GuardedJvm | None = None
        self._listeners: Listeners | None = None
        self._ports = ClaimedPorts()
        self._folder: Path | None = None
        self._announced: Announcement | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """Address of the listener without login; raises BrokerError before the start."""
        return f"{LOOPBACK}:{self._started().plain}"

    @property
    def login_bootstrap(self) -> str:
        """Address of the listener with login; raises BrokerError where there is none."""
        port = self._started().login
        if port is None:
            raise BrokerError("this broker has no listener with login")
        return f"{LOOPBACK}:{port}"

    @property
    def certificate_bootstrap(self) -> str:
        """Address of the listener for clients' certificates; raises BrokerError without one."""
        port = self._started().certificate
        if port is None:
            raise BrokerError("this broker has no listener for clients' certificates")
        return f"{LOOPBACK}:{port}"

    @property
    def data_dir(self) -> Path:
        """Folder of data, settings and log; raises BrokerError before the start."""
        if self._folder is None:
            raise BrokerError("the broker was not started")
        return self._folder

    @property
    def pid(self) -> int | None:
        """Process id of the JVM, None while it is down."""
        return None if self._jvm is None else self._jvm.pid

    @property
    def running(self) -> bool:
        """Whether the JVM is there."""
        return self._jvm is not None and self.pid is not None and self._jvm.exit_code() is None

    def start(self) -> str:
        """Fetch what is missing, start, wait until it answers; return the address.

        Raises
        ------
        EmbeddedServerError
            If it cannot be fetched or does not start; the message says why.
        """
        if self._jvm is not None:
            return self.bootstrap
        jars = fetch(KAFKA, progress=self._progress)
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                self._prepare()
                self._launch(jars)
                break
            except BrokerError as error:
                self.stop()
                if attempt == START_ATTEMPTS or "BindException" not in str(error):
                    raise
            except BaseException:
                self.stop()  # also on Ctrl-C
                raise
        return self.bootstrap

    def stop(self) -> None:
        """End the broker, remove what is temporary; harmless when it does not run."""
        jvm, self._jvm = self._jvm, None
        if jvm is not None:
            jvm.close()
        if self._announced is not None:
            announcement.withdraw(self._announced)
            self._announced = None
        self._ports.release()
        if self._data_dir is None and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def kill(self) -> None:
        """End the JVM by SIGKILL; data and port stay for `restart`."""
        if self._jvm is None:
            raise BrokerError("the broker was not started")
        self._jvm.kill()

    def shut_down(self) -> None:
        """End the JVM in order; data and port stay for `restart`."""
        if self._jvm is None:
            raise BrokerError("the broker was not started")
        self._jvm.stop()

    def restart(self) -> str:
        """Start again on the same port and data, after `kill` or `shut_down` or instead."""
        if self._jvm is None:
            raise BrokerError("the broker was not started")
        if self.running:
            self._jvm.stop()
        self._jvm.start()
        self._wait_ready(self._jvm)
        return self.bootstrap

    def log_tail(self) -> str:
        """Return the last lines of the broker's log."""
        return "" if self._jvm is None else self._jvm.log_tail()

    def _started(self) -> Listeners:
        if self._listeners is None or self._folder is None:
            raise BrokerError("the broker was not started")
        return self._listeners

    def _prepare(self) -> None:
        """Choose folder and ports."""
        if self._port is not None and not is_free(self._port):
            raise BrokerError(f"port {self._port} of {LOOPBACK} is taken; choose another one")
        try:
            if self._data_dir is None:
                self._folder = Path(tempfile.mkdtemp(prefix="skeletonhunter-kafka-"))
            else:
                self._folder = self._data_dir
            # Native parts of codecs are unpacked into tmp, which a killed JVM leaves behind.
            (self._folder / "tmp").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BrokerError(f"cannot use the data folder: {error}") from error
        given = self._port
        self._listeners = Listeners(
            plain=given or self._ports.claim(),
            controller=self._ports.claim(given),
            login=None if self._login is None else self._ports.claim(given),
            certificate=None
            if self._login is None or self._login.client_ca is None
            else self._ports.claim(given),
        )

    def _launch(self, jars: tuple[Path, ...]) -> None:
        folder, listeners = self.data_dir, self._started()
        settings = properties.server_properties(
            listeners, folder / "logs", login=self._login, extra=self._settings
        )
        config = folder / "kafka.properties"
        config.touch(mode=0o600)  # it may hold a password
        config.write_text(properties.as_text(settings), encoding="utf-8")
        if not (folder / "logs" / "meta.properties").exists():
            format_storage(jars, folder, config, self._login)
        if self._announce:
            self._announced = Announcement(
                bootstrap=self.bootstrap, pid=os.getpid(), data_dir=str(folder)
            )
        self._jvm = GuardedJvm(
            JvmSpec(
                argv=java_command(jars, folder, record=self._record, mains=[SERVER, str(config)]),
                cwd=folder,
                log=folder / "kafka.log",
                remove=folder if self._data_dir is None else None,
                grace_s=GRACE_S if self._record is None else RECORD_GRACE_S,
                announcement=None
                if self._announced is None
                else (announcement.announcement_path().absolute(), self._announced.text()),
            )
        )
        self._jvm.start()
        self._wait_ready(self._jvm)
        if self._announced is not None:
            try:
                announcement.write(self._announced)
            except OSError as error:
                raise BrokerError(
                    f"cannot write {announcement.announcement_path()}: {error.strerror}"
                ) from error

    def _wait_ready(self, jvm: GuardedJvm) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S

        def check() -> None:
            code = jvm.exit_code()
            if code is not None:
                raise BrokerError(f"Kafka ended with code {code}:\n{jvm.log_tail()}")
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"Kafka did not answer within {READY_TIMEOUT_S:.0f} s:\n{jvm.log_tail()}"
                )

        wait_for_metadata(self.bootstrap, check)

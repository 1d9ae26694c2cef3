"""The Maven repository as a source of artifacts, through `jgo`.

`jgo` knows the repository's address, and that of a mirror where the user's
`jgo.conf` names one.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import requests
from jgo.config import GlobalSettings
from jgo.maven import MavenContext, PythonResolver

from ops.broker.errors import FetchError, OfflineError
from ops.broker.lock import LockedArtifact


class MavenSource:
    """Downloads from the repositories that `jgo` is configured for."""

    def __init__(self, timeout_s: int) -> None:
        self._timeout_s = timeout_s
        self._mirrors: dict[str, str] = GlobalSettings.load().repositories

    def download(
        self, artifact: LockedArtifact, folder: Path, on_size: Callable[[int], None],
        on_bytes: Callable[[int], None],
    ) -> Path:  # fmt: skip
        """Download one artifact; see `ops.broker.fetch.Source`."""

        @contextlib.contextmanager
        def progress(_filename: str, total: int) -> Iterator[Callable[[int], None]]:
            on_size(total)
            yield on_bytes

        # One context for each download: its cache is the scratch folder, where
        # jgo can never find a partial file of an earlier attempt.
        context = MavenContext(
            resolver=PythonResolver(progress_callback=progress),
            repo_cache=folder,
            timeout=self._timeout_s,
        )
        context.remote_repos.update(self._mirrors)
        component = context.project(artifact.group, artifact.name).at_version(artifact.version)
        try:
            return Path(component.artifact(artifact.classifier, artifact.packaging).resolve())
        except requests.RequestException as error:
            hosts = " or ".join(str(urlsplit(u).hostname) for u in context.remote_repos.values())
            raise OfflineError(
                f"cannot download {artifact.filename} from {hosts} ({_reason(error)})"
            ) from error
        except RuntimeError as error:
            raise FetchError(
                f"{artifact.coordinate} is not to be had: {error}. If a proxy needs a login, set "
                "HTTPS_PROXY; a mirror can be named in jgo.conf"
            ) from error


def _reason(error: BaseException) -> str:
    """Return the innermost cause, which is the one that people understand."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return str(error) or type(error).__name__

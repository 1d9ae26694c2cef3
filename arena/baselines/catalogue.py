"""Diagnosers by name: the baselines, `module:Class`, or a command line."""

import importlib
import re
import shlex
from collections.abc import Callable
from typing import Final

from arena.baselines.bayesian import Bayesian
from arena.baselines.external import TIMEOUT_S, Command
from arena.baselines.hit_ratio import HitRatio
from arena.baselines.least_squares import LeastSquares
from arena.baselines.plugin import Diagnoser, PluginError
from arena.baselines.published import Published
from arena.baselines.rtt_threshold import RttThreshold
from arena.baselines.votes import Votes

BASELINES: Final[dict[str, Callable[[], Diagnoser]]] = {
    "published": Published,
    "votes": Votes,
    "hit-ratio": HitRatio,
    "least-squares": LeastSquares,
    "bayesian": Bayesian,
    "rtt-threshold": RttThreshold,
}
CLASS: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def open_diagnoser(spec: str, *, timeout_s: float = TIMEOUT_S) -> Diagnoser:
    """Return a fresh diagnoser.

    Parameters
    ----------
    spec
        Name of a baseline; or `module:Class`, whose object is made without arguments; or
        the command line of a program, split as a shell would, but run without one.
    timeout_s
        How long a command may take over a window.

    Raises
    ------
    PluginError
        If it cannot be had.
    """
    if spec in BASELINES:
        return BASELINES[spec]()
    if CLASS.fullmatch(spec):
        return _of_class(spec)
    try:
        words = shlex.split(spec)
    except ValueError as error:
        raise PluginError(f"diagnoser {spec!r}: {error}") from error
    if not words:
        raise PluginError(f"diagnoser {spec!r}: one of {', '.join(BASELINES)}, module:Class, or "
                          "a command")  # fmt: skip
    return Command(words, name=spec, timeout_s=timeout_s)


def _of_class(spec: str) -> Diagnoser:
    module, _, name = spec.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)()
    except Exception as error:  # foreign code: whatever it raises is reported
        raise PluginError(f"diagnoser {spec}: {type(error).__name__}: {error}") from error
    if not isinstance(found, Diagnoser):
        raise PluginError(f"diagnoser {spec}: it needs `name` and `observe(window)`")
    return found

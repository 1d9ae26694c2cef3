"""What was killed or ended by itself is started again."""

from functools import partial

import pytest

from ops.bench.resilience.supervisor import RESTART_S, Supervised, Supervisor


class Process:
    """A process that remembers how often it was started."""

    def __init__(self) -> None:
        self.up, self.starts = True, 0

    def kill(self) -> None:
        """End."""
        self.up = False

    def start(self) -> None:
        """Be there again."""
        self.up = True
        self.starts += 1


def test_a_killed_process_is_started_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ended by itself, too, and is counted apart."""
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    one, other = Process(), Process()
    said: list[str] = []
    supervised = [
        Supervised(name, "agent", partial(getattr, p, "up"), p.kill, p.start)
        for name, p in (("one", one), ("other", other))
    ]
    supervisor = Supervisor(supervised, said.append)
    supervisor.kill(supervised[0])
    assert [p.name for p in supervisor.running()] == ["other"]
    supervisor.look()
    assert not one.up
    other.up = False
    now_s += RESTART_S
    supervisor.look()
    assert one.up
    assert not supervisor.all_running
    now_s += RESTART_S
    supervisor.look()
    assert supervisor.all_running
    assert (one.starts, other.starts) == (1, 1)
    assert (supervisor.kills, supervisor.ended) == ({"agent": 1}, {"agent": 1})
    assert said == ["other has ended by itself"]
    one.up = False
    supervisor.release("agent")
    supervisor.look()
    assert supervisor.all_running

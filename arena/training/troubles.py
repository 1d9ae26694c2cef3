"""What goes wrong in a rank of a training job, and the pauses that are no fault."""

from dataclasses import dataclass
from enum import Enum


class Trouble(Enum):
    """Faults of ranks, of their hosts and collectors.

    How a real job behaves under each: a stopped process neither launches nor moves bytes, while
    its kernel still acknowledges what arrives. One that ended closes its connections. What is
    behind in the program launches nothing and moves all that it launched before. NCCL with two
    sizes or two operations at one sequence stands; gloo ends the process whose buffer does not
    fit. A slow process holds its neighbours' bytes up, whether it reads or writes slowly: the ring
    has a few slots, and they fill.
    """

    STOPPED = "the process is stopped (SIGSTOP, a debugger, a frozen cgroup)"
    EXITED = "the process has ended, and the launcher does not end the others"
    LOADER = "the loader gives no batch any more"
    DEADLOCK = "the program stands before an operation: a lock, a branch of its own"
    SPINNING = "the same, and it keeps a core busy"
    GPU = "a kernel on the GPU does not end"
    SIZE = "an operation on a tensor of another size"
    OPERATION = "another operation than the others"
    ORDER = "two operations of a communicator in the opposite order"
    SKIPPED = "an operation is left out"
    SLOW = "computes longer"
    SLOW_SENDER = "its process writes slowly"
    SLOW_RECEIVER = "its process reads slowly"
    HOST = "the host is down"
    COLLECTOR = "the collector of the host is gone: no fault of the job"


DESYNCHRONISED = frozenset({Trouble.SIZE, Trouble.OPERATION, Trouble.ORDER, Trouble.SKIPPED})
# In these the process launches nothing any more, and what it moves of its own stands still.
HALTS = frozenset({Trouble.STOPPED, Trouble.EXITED, Trouble.HOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrouble:
    """A fault of a rank; of HOST and COLLECTOR of all ranks of its host.

    Attributes
    ----------
    begin_us, end_us
        True time since the job's begin; `end_us` None: it stays.
    factor
        How much longer what is slow takes.
    """

    trouble: Trouble
    rank: int
    begin_us: int
    end_us: int | None = None
    factor: float = 1.0

    def at(self, time_us: int) -> bool:
        """Say whether it is so at a time."""
        return self.begin_us <= time_us and (self.end_us is None or time_us < self.end_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """What a healthy job does beside training; iterations are counted from 0.

    Attributes
    ----------
    compile_s
        Longer that the first iteration takes: compilation, connections.
    checkpoint_every, checkpoint_s
        Iterations between checkpoints, and how long one takes.
    one_saves
        Rank 0 writes alone and the others wait; else all write.
    evaluation_every
        Iterations between evaluations.
    load_share, load_s
        Share of the iterations in which a rank's loader is late, and its mean delay (exponential).
    hiccup_share, hiccup_s
        The same of computing: garbage collection, clocks of the GPU.
    jitter
        Spread of a step's time, as a share of it; ranks differ by as much for good.
    last_iteration
        After which the job ends; None: it does not.
    """

    compile_s: float = 6.0
    checkpoint_every: int = 0
    checkpoint_s: float = 8.0
    one_saves: bool = False
    evaluation_every: int = 0
    load_share: float = 0.01
    load_s: float = 0.4
    hiccup_share: float = 0.002
    hiccup_s: float = 0.2
    jitter: float = 0.03
    last_iteration: int | None = None

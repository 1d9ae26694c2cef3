"""A training job in simulated time: who launches what when, and when it is through.

Each rank has a host, which launches, and a GPU, which does one thing after another. With gloo the
host waits for each operation; with NCCL it runs ahead, until its queue is full or the program
waits. An operation is through when all members have begun it and its bytes have crossed; a
transfer likewise. Times follow from these dependencies alone, so that ranks are followed one by one
as far as they come, and each is taken up again by what it waited for.

All times are true microseconds since the job's begin.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from arena.training.program import DP, TP, Does, Step, checkpoint, evaluation, training
from arena.training.shape import GroupShape, JobShape
from arena.training.troubles import DESYNCHRONISED, HALTS, Pauses, RankTrouble, Trouble
from arena.training.wires import Edge, Wires, share
from schemas.units import US_PER_S

LAUNCH_US: Final = 30
# Operations that NCCL's host launches ahead of the GPU: the queue of a stream holds some hundred
# kernels, of which an operation is one.
LEAD: Final = 24
LOAD_US: Final = 2_000
# How long intervals of work are kept: collectors read a few seconds behind.
KEPT_US: Final = 30_000_000
# Members before the rank whose buffer does not fit end after so long (gloo).
UNFIT_US: Final = 20_000


class Op:
    """An operation of a rank; `ended` None: it is not through, or never is."""

    __slots__ = (
        "ended", "group", "launched", "meeting", "number", "peer", "seq", "started", "step",
    )  # fmt: skip

    def __init__(self, number: int, step: Step, group: GroupShape, seq: int, launched: int) -> None:
        self.number = number
        self.step = step
        self.group = group
        self.seq = seq
        self.launched = launched
        self.started: int | None = None
        self.ended: int | None = None
        self.peer: int | None = None
        self.meeting: Meeting | None = None

    @property
    def meeting_begun(self) -> int | None:
        """When all had begun it; None: not all have."""
        return None if self.meeting is None else self.meeting.begun


class Meeting:
    """An operation of a group, or a transfer of a pair: who has begun it, since when."""

    __slots__ = ("begun", "edges", "need", "ops", "stuck")

    def __init__(self, need: int, edges: tuple[Edge, ...]) -> None:
        self.need = need
        self.edges = edges
        self.ops: list[tuple[int, Op]] = []
        # When the last has begun it.
        self.begun: int | None = None
        self.stuck = False


class RankRun:
    """A rank as it goes.

    Attributes
    ----------
    host_us, gpu_us
        How far each is.
    fresh
        Operations that nobody has read yet.
    spans
        When its process worked (gloo) or idled (NCCL, which else waits by spinning).
    halted_us
        Since when its process does nothing any more.
    """

    def __init__(self, number: int, seed: int) -> None:
        self.number = number
        self.random = Random(f"{seed}/{number}")  # noqa: S311 - a seed decides
        self.host_us = 0
        self.gpu_us = 0
        self.steps: Sequence[Step] = ()
        self.place = 0
        self.iteration = -1
        # Operations; of computing, when it was launched and how long it takes.
        self.queue: deque[Op | tuple[int, int]] = deque()
        self.ahead = 0
        self.full = False
        self.syncing = False
        self.count = 0
        self.seqs: dict[tuple[int, bool], int] = {}
        self.pairs: dict[tuple[int, int, int], int] = {}
        self.fresh: list[Op] = []
        self.spans: deque[tuple[int, int | None]] = deque()
        self.spent = 0
        self.halted_us: int | None = None
        self.blocked_us: int | None = None
        self.ended_us: int | None = None
        self.hung = False
        self.speed = 1.0
        self.did: set[Trouble] = set()
        self.saving: tuple[int, int] | None = None

    def span_us(self, at_us: int) -> int:
        """Return how long it worked, or idled, up to a time."""
        total = self.spent
        for begin, end in self.spans:
            if begin < at_us:
                total += min(at_us, at_us if end is None else end) - begin
        return total

    def note(self, begin_us: int, end_us: int | None) -> None:
        """Note an interval of work or of idleness."""
        self.spans.append((begin_us, end_us))
        while (end := self.spans[0][1]) is not None and end < begin_us - KEPT_US:
            self.spent += end - self.spans.popleft()[0]


class Engine:
    """Runs the ranks of one attempt of a job."""

    def __init__(
        self,
        shape: JobShape,
        wires: Wires,
        pauses: Pauses,
        troubles: Iterable[RankTrouble] = (),
        *,
        seed: int,
        begin_us: int = 0,
    ) -> None:
        self.shape = shape
        self.wires = wires
        self._pauses = pauses
        self._seed = seed
        stages = range(shape.pp)
        self._training = [training(shape, s) for s in stages]
        self._evaluation = [evaluation(shape, s) for s in stages]
        self._checkpoint = checkpoint()
        self.ranks = [RankRun(n, seed) for n in range(shape.ranks)]
        self.troubles: dict[int, list[RankTrouble]] = {}
        self.add_troubles(troubles)
        for run in self.ranks:
            run.host_us = run.gpu_us = begin_us
            run.speed = 1.0 + pauses.jitter * (run.random.random() - 0.5)
        self._meetings: dict[tuple[int, int, int, int], Meeting] = {}
        self._until = begin_us
        self._ready: deque[int] = deque()

    def add_troubles(self, troubles: Iterable[RankTrouble]) -> None:
        """Let something go wrong later than what has been simulated."""
        shape = self.shape
        for trouble in troubles:
            whole = trouble.trouble in {Trouble.HOST, Trouble.COLLECTOR}
            first = shape.host(trouble.rank) * shape.rails
            ranks = range(first, first + shape.rails) if whole else (trouble.rank,)
            for rank in ranks:
                self.troubles.setdefault(rank, []).append(trouble)

    def advance(self, to_us: int) -> None:
        """Go on up to a time; a step that has begun before is known to its end."""
        self._until = to_us
        self._ready.extend(range(len(self.ranks)))
        while self._ready:
            self._go_on(self.ranks[self._ready.popleft()])

    def trouble(self, rank: int, *kinds: Trouble) -> RankTrouble | None:
        """Return a rank's trouble of one of these kinds, whenever it is."""
        return next((t for t in self.troubles.get(rank, ()) if t.trouble in kinds), None)

    def _go_on(self, run: RankRun) -> None:
        """Follow a rank as far as it comes."""
        while True:
            self._drain(run)
            if run.halted_us is not None or run.blocked_us is not None or run.ended_us is not None:
                return
            if run.syncing:
                if run.queue:
                    return
                run.syncing = False
                run.host_us = max(run.host_us, run.gpu_us)
            if run.ahead >= LEAD:
                run.full = True
                return
            if run.full:
                run.full = False
                run.host_us = max(run.host_us, run.gpu_us)
            if run.host_us > self._until:
                return
            if run.place >= len(run.steps) and not self._next_iteration(run):
                return
            step = run.steps[run.place]
            if self._stands(run, step):
                return
            run.place += 1
            self._take(run, step)

    def _next_iteration(self, run: RankRun) -> bool:
        """Give a rank its next iteration; False: the job has ended."""
        run.iteration += 1
        number, pauses = run.iteration, self._pauses
        if pauses.last_iteration is not None and number > pauses.last_iteration:
            run.ended_us = run.host_us + round(run.random.uniform(0.1, 1.5) * US_PER_S)
            return False
        stage = self.shape.stage(run.number)
        steps = self._training[stage]
        if number and pauses.checkpoint_every and number % pauses.checkpoint_every == 0:
            steps = (*self._checkpoint, *steps)
        if number and pauses.evaluation_every and number % pauses.evaluation_every == 0:
            steps = (*self._evaluation[stage], *steps)
        run.steps, run.place = steps, 0
        return True

    def _take(self, run: RankRun, step: Step) -> None:
        match step.does:
            case Does.COMPUTE:
                took = self._computing(run, step.us)
                if self.shape.waits_for_each:
                    self._spend(run, took, noted=True)
                    run.gpu_us = max(run.gpu_us, run.host_us)
                else:
                    self._spend(run, LAUNCH_US, noted=False)
                    run.queue.append((run.host_us, took))
            case Does.SYNC:
                run.syncing = True
            case Does.LOAD:
                late = run.random.random() < self._pauses.load_share
                mean_us = self._pauses.load_s * US_PER_S if late else 0.0
                took = LOAD_US + round(mean_us * run.random.expovariate(1.0))
                self._spend(run, took, noted=not self.shape.waits_for_each and late)
            case Does.SAVE:
                self._save(run)
            case _:
                self._launch(run, step)

    def _computing(self, run: RankRun, planned_us: int) -> int:
        pauses, random = self._pauses, run.random
        took = planned_us * run.speed * random.lognormvariate(0.0, pauses.jitter)
        if run.iteration == 0:
            # Compiled once for each shape, a few of them.
            took += (
                pauses.compile_s * US_PER_S * random.uniform(0.8, 1.2) / max(1, len(run.steps) // 4)
            )
        if random.random() < pauses.hiccup_share:
            took += pauses.hiccup_s * US_PER_S * random.expovariate(1.0)
        slow = self.trouble(run.number, Trouble.SLOW)
        if slow is not None and slow.at(max(run.host_us, run.gpu_us)):
            took *= slow.factor
        return max(1, round(took))

    def _save(self, run: RankRun) -> None:
        """Write a checkpoint: the process works, or waits for the disk."""
        pauses = self._pauses
        run.syncing = False
        took = 10_000.0
        if not pauses.one_saves or run.number == 0:
            took = pauses.checkpoint_s * US_PER_S * run.random.uniform(0.9, 1.1)
        run.host_us = max(run.host_us, run.gpu_us)
        begin = run.host_us
        self._spend(run, round(took), noted=self.shape.waits_for_each)
        run.saving = (begin, run.host_us)

    def _spend(self, run: RankRun, us: int, *, noted: bool) -> None:
        """Let a rank's host be busy, or idle, for so long, or stop within."""
        begin, end = run.host_us, run.host_us + us
        stop = self.trouble(run.number, *HALTS)
        if stop is not None and stop.begin_us < end and (
            stop.end_us is None or begin < stop.end_us
        ):  # fmt: skip
            if stop.end_us is None:
                run.halted_us = max(begin, stop.begin_us)
                if noted:
                    run.note(begin, run.halted_us)
                return
            end += stop.end_us - max(begin, stop.begin_us)
        if noted:
            run.note(begin, end)
        run.host_us = end

    def _stands(self, run: RankRun, step: Step) -> bool:
        """Return whether the program goes no further here."""
        for one in self.troubles.get(run.number, ()):
            if run.host_us < one.begin_us:
                continue
            if one.trouble is Trouble.LOADER and step.does is Does.LOAD:
                stands = True
            else:
                stands = (
                    one.trouble in {Trouble.DEADLOCK, Trouble.SPINNING}
                    and step.does is Does.COLLECTIVE
                )
            if not stands or one.trouble in run.did:
                continue
            if one.end_us is not None:
                run.did.add(one.trouble)
                if one.end_us > run.host_us:
                    self._idle(run, one, one.end_us)
                    run.host_us = one.end_us
                continue
            run.blocked_us = run.host_us
            self._idle(run, one, None)
            return True
        return False

    def _idle(self, run: RankRun, trouble: RankTrouble, until_us: int | None) -> None:
        """Note the process's time: of one that spins as work, of others as idleness."""
        if self.shape.waits_for_each == (trouble.trouble is Trouble.SPINNING):
            run.note(run.host_us, until_us)

    def _launch(self, run: RankRun, step: Step) -> None:
        self._spend(run, LAUNCH_US, noted=False)
        if run.halted_us is not None:
            return
        step = self._as_done(run, step)
        group = self.shape.groups_of[run.number][step.role]
        transfer = step.does is not Does.COLLECTIVE
        number = run.seqs.get((group.number, transfer), 0)
        run.seqs[group.number, transfer] = number + 1
        op = Op(run.count, step, group, number, run.host_us)
        run.count += 1
        if transfer:
            place = group.ranks.index(run.number)
            op.peer = group.ranks[place + step.towards]
        run.fresh.append(op)
        run.queue.append(op)
        run.ahead += 1
        if self.shape.waits_for_each and step.does is not Does.SEND:
            run.syncing = True

    def _as_done(self, run: RankRun, step: Step) -> Step:
        """Return the step as this rank does it; one that differs does so once."""
        wrong = self.trouble(run.number, *DESYNCHRONISED)
        if wrong is None or run.host_us < wrong.begin_us or wrong.trouble in run.did:
            return step
        what = wrong.trouble
        if step.does is not Does.COLLECTIVE or step.role not in {DP, TP}:
            return step
        if what is Trouble.SIZE:
            found: Step | None = _resized(step, wrong.factor)
        elif step.role is not DP:
            found = None
        elif what is Trouble.OPERATION:
            found = Step(Does.COLLECTIVE, 0, step.role, "allreduce", step.inputs, step.inputs)
        else:
            found = _out_of_order(run, step, leaves_out=what is Trouble.SKIPPED)
        if found is None:
            return step
        run.did.add(what)
        return found

    def _drain(self, run: RankRun) -> None:
        """Let a rank's GPU do what is queued, as far as it is known."""
        hang = self.trouble(run.number, Trouble.GPU)
        while run.queue and not run.hung:
            task = run.queue[0]
            if isinstance(task, tuple):
                end = max(run.gpu_us, task[0]) + task[1]
                if hang is not None and end > hang.begin_us:
                    run.hung = True
                    return
                run.gpu_us = end
                run.queue.popleft()
                continue
            if task.started is None:
                begin = max(run.gpu_us, task.launched)
                if hang is not None and begin > hang.begin_us:
                    run.hung = True
                    return
                task.started = begin
                self._meet(run, task)
            if task.step.does is not Does.SEND:
                if task.ended is None:
                    return
                run.gpu_us = max(run.gpu_us, task.ended)
            run.queue.popleft()
            run.ahead -= 1

    def _meet(self, run: RankRun, op: Op) -> None:
        group = op.group
        if op.peer is None:
            key = (group.number, -1, -1, op.seq)
            need = len(group.ranks)
            edges = self.wires.edges(group)
        else:
            sends = op.step.does is Does.SEND
            pair = (run.number, op.peer) if sends else (op.peer, run.number)
            count = run.pairs.get((group.number, *pair), 0)
            run.pairs[group.number, *pair] = count + 1
            key = (group.number, *pair, count)
            need = 2
            edges = (pair,) if self.shape.host(pair[0]) != self.shape.host(pair[1]) else ()
        meeting = self._meetings.get(key)
        if meeting is None:
            meeting = self._meetings[key] = Meeting(need, edges)
        meeting.ops.append((run.number, op))
        op.meeting = meeting
        if len(meeting.ops) == need:
            del self._meetings[key]
            self._carry(meeting, op)

    def _carry(self, meeting: Meeting, last: Op) -> None:
        """Carry an operation that all have begun."""
        begun = max(op.started or 0 for _, op in meeting.ops)
        meeting.begun = begun
        done = {(op.step.operation, op.step.inputs) for _, op in meeting.ops}
        if last.peer is None and len(done) > 1:
            meeting.stuck = True
            self._end_unfit(meeting, begun)
            return
        need = self.wires.usual_us(last.group, last.step.n_bytes, last.seq)
        edges = meeting.edges
        for rank, _ in meeting.ops if edges and self.troubles else ():
            slow = self.trouble(rank, Trouble.SLOW_SENDER, Trouble.SLOW_RECEIVER)
            if slow is not None and slow.at(begun):
                need = round(need * slow.factor)
        end = self.wires.end_us(edges, begun, need)
        for rank, _ in meeting.ops if self.troubles else ():
            end = self._halted(rank, begun, end, crossing=bool(edges))
        if end is None:
            meeting.stuck = True
            return
        for rank, op in meeting.ops:
            op.ended = end
            self._ready.append(rank)

    def _halted(self, rank: int, begin: int, end: int | None, *, crossing: bool) -> int | None:
        """Return when a transfer is through that needs a rank's process, and its GPU."""
        if end is None:
            return None
        hang = self.trouble(rank, Trouble.GPU)
        if hang is not None and begin <= hang.begin_us < end:
            return None
        stop = self.trouble(rank, *HALTS)
        moves = crossing or self.shape.waits_for_each
        if stop is None or not moves or stop.begin_us >= end:
            return end
        if stop.end_us is None:
            return None
        return end if begin >= stop.end_us else end + stop.end_us - max(begin, stop.begin_us)

    def _end_unfit(self, meeting: Meeting, begun: int) -> None:
        """End the process of gloo whose buffer is smaller than what arrives."""
        kinds = {op.step.operation for _, op in meeting.ops}
        if not self.shape.waits_for_each or len(kinds) > 1:
            return
        ring = [rank for rank, _ in sorted(meeting.ops)]
        sizes = {rank: op.step.n_bytes for rank, op in meeting.ops}
        for place, rank in enumerate(ring):
            after = ring[(place + 1) % len(ring)]
            if sizes[after] < sizes[rank]:
                run = self.ranks[after]
                when = begun + round(UNFIT_US * (0.5 + share(after, begun)))
                run.halted_us = when
                self.troubles.setdefault(after, []).append(
                    RankTrouble(trouble=Trouble.EXITED, rank=after, begin_us=when)
                )
                return


def _out_of_order(run: RankRun, step: Step, *, leaves_out: bool) -> Step | None:
    """Return the communicator's next other operation, which the step then follows, or not."""
    after = next(
        (
            place
            for place in range(run.place, len(run.steps))
            if (other := run.steps[place]).role is step.role and other.operation and other != step
        ),
        None,
    )
    if after is None:
        return None
    found, steps = run.steps[after], list(run.steps)
    if leaves_out:
        del steps[after]
    else:
        steps[after] = step
    run.steps = steps
    return found


def _resized(step: Step, factor: float) -> Step:
    """Return a step on a tensor that is larger or smaller in its first dimension."""

    def resize(shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple((max(1, round(s[0] * factor)), *s[1:]) for s in shapes)

    return Step(
        step.does, step.us, step.role, step.operation, resize(step.inputs), resize(step.outputs)
    )

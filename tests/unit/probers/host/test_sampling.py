"""Ticks on the wall clock, batches of a second, and clocks that are set."""

from probers.host.counters import Reading
from probers.host.sampling import MISSED, Batch, Sampler, Source
from schemas.units import MS_NS, SECOND_NS
from tests.unit.probers.clocks import ManualClock

TICK = 100 * MS_NS


class Rig:
    """A sampler of two RNICs on a manual clock."""

    def __init__(self, offset_ns: int = 37 * MS_NS) -> None:
        self.clock = ManualClock(realtime_ns=1_000 * SECOND_NS + offset_ns)
        self.reads = 0
        self.sampler = Sampler(TICK, {"w0/r0": Source(0, self), "w0/r1": Source(1, self)})

    # The counters of both RNICs.
    descriptors = ((3,), (4,))

    def reading(self, tx_units: int, rx_units: int) -> Reading:
        """Return what somebody else has read."""
        return Reading(tx_units, rx_units, 64)

    def read(self) -> Reading:
        """Count the reading; it takes 20 us."""
        self.reads += 1
        self.clock.advance(20_000)
        return Reading(self.reads, self.reads, 64)

    def run(self, for_ns: int, late_ns: int = 0) -> list[Batch]:
        """Sleep from tick to tick as the agent does, waking late by so much."""
        batches: list[Batch] = []
        end_ns = self.clock.monotonic_ns + for_ns
        while True:
            now = self.clock.now()
            due_ns = self.sampler.due_ns(now)
            if due_ns > end_ns:
                return batches
            self.clock.advance(max(0, due_ns - now.monotonic_ns) + late_ns)
            batches.extend(self.sampler.tick(self.clock.now))


class Gone:
    """Counters of a device that is not there."""

    descriptors = None

    def read(self) -> Reading:
        """Say why."""
        return Reading(None, None, 34, "port_xmit_data: No such device")

    def reading(self, tx_units: int, rx_units: int) -> Reading:
        """Say what numbers read by somebody else are too large for."""
        return Reading(None, None, 34, f"{tx_units + rx_units} bytes do not fit 63 bits")


def test_ticks_are_whole_multiples_since_the_epoch_and_a_batch_is_a_second() -> None:
    """Ten ticks of both RNICs per message, the first at the whole second."""
    rig = Rig()
    batches = rig.run(3_500 * MS_NS, late_ns=MS_NS)
    assert [b.started_ns % SECOND_NS for b in batches[1:]] == [0, 0]
    for batch in batches[1:]:
        assert len(batch.samples) == 20
        assert sorted({s.tick_offset_ns for s in batch.samples}) == [n * TICK for n in range(10)]
    assert all(b.started_ns % TICK == 0 for b in batches)


def test_two_agents_sample_the_same_ticks_whenever_they_started() -> None:
    """The ticks are the wall clock's, not the process's."""
    ticks = [
        {b.started_ns + s.tick_offset_ns for b in Rig(offset).run(4 * SECOND_NS) for s in b.samples}
        for offset in (0, 37 * MS_NS, 512 * MS_NS)
    ]
    assert len(ticks[0] & ticks[1] & ticks[2]) >= 20


def test_the_delay_from_tick_to_reading_is_told() -> None:
    """Woken 3 ms late, the first RNIC is read 3 ms after the tick, the second later."""
    rig = Rig()
    first, second = rig.run(1_500 * MS_NS, late_ns=3 * MS_NS)[-1].samples[:2]
    assert first.read_delay_ns == 3 * MS_NS + 20_000
    assert second.read_delay_ns == 3 * MS_NS + 40_000


def test_ticks_slept_through_are_samples_without_values() -> None:
    """Missing with a reason, so that nobody takes a gap for silence of the job."""
    rig = Rig(offset_ns=0)
    rig.run(450 * MS_NS)
    rig.clock.advance(310 * MS_NS)
    (batch,) = rig.run(300 * MS_NS)
    missed = [s for s in batch.samples if s.missing_reason == MISSED]
    assert len(missed) == 4
    assert all(s.tx_bytes is None and s.read_delay_ns is None for s in missed)
    assert len({s.tick_offset_ns for s in batch.samples}) * 2 == len(batch.samples)


def test_a_long_sleep_is_not_listed_tick_by_tick() -> None:
    """After an hour there is no message with 36,000 missing samples."""
    rig = Rig()
    rig.run(SECOND_NS)
    rig.clock.advance(3_600 * SECOND_NS)
    assert max(len(b.samples) for b in rig.run(2 * SECOND_NS)) <= 20


def test_a_clock_set_forward_ends_the_batch_and_goes_on() -> None:
    """The samples before and after are in different messages, each on its own ticks."""
    rig = Rig()
    before = rig.run(1_250 * MS_NS)
    rig.clock.step(86_400 * SECOND_NS)
    after = rig.run(2 * SECOND_NS)
    starts = [b.started_ns for b in before + after]
    assert starts == sorted(starts)
    assert after[-1].started_ns - before[0].started_ns > 86_000 * SECOND_NS
    assert all(0 <= s.tick_offset_ns < SECOND_NS for b in before + after for s in b.samples)


def test_a_clock_set_back_ends_the_batch_and_goes_on() -> None:
    """Within a tick or two it samples again, on the new time's ticks."""
    rig = Rig()
    rig.run(1_250 * MS_NS)
    rig.clock.step(-86_400 * SECOND_NS)
    reads = rig.reads
    batches = rig.run(2 * SECOND_NS)
    assert rig.reads - reads >= 36
    assert batches[-1].started_ns < 1_000 * SECOND_NS
    assert all(0 <= s.tick_offset_ns < SECOND_NS for b in batches for s in b.samples)


def test_an_unreadable_counter_is_a_sample_with_its_reason() -> None:
    """The reading's reason goes into the record, and the delay is unknown."""
    clock = ManualClock(realtime_ns=1_000 * SECOND_NS)
    sampler = Sampler(TICK, {"w0/r0": Source(0, Gone())})
    batches: list[Batch] = []
    for _ in range(12):
        batches.extend(sampler.tick(clock.now))
        clock.advance(TICK)
    sample = batches[-1].samples[0]
    assert (sample.tx_bytes, sample.rx_bytes, sample.read_delay_ns) == (None, None, None)
    assert sample.missing_reason == "port_xmit_data: No such device"
    assert sample.counter_bits == 34


def test_ticks_that_somebody_else_reads_are_as_if_read_here() -> None:
    """Whatever part of them he takes: the same batches, with values and delays."""
    for theirs in ((0, 1), (1,), (1, 0, 0), (1, 1, 0)):
        here, there = Rig(), Rig()
        wanted = here.run(5 * SECOND_NS)
        found: list[Batch] = []
        for turn in range(10**6):
            now = there.clock.now()
            due_ns = there.sampler.due_ns(now)
            if due_ns > here.clock.monotonic_ns:
                break
            there.clock.advance(max(0, due_ns - now.monotonic_ns))
            ticks = there.sampler.ticks()
            assert (ticks is None) == (turn == 0)
            if ticks is None or not theirs[turn % len(theirs)]:
                found.extend(there.sampler.tick(there.clock.now))
                continue
            next_ns, tick_ns, files = ticks
            assert (tick_ns, files) == (TICK, (Rig.descriptors,) * 2)
            units = tuple(
                (reading.tx_bytes or 0, reading.rx_bytes or 0, delay_ns)
                for reading, delay_ns in (
                    (there.read(), there.clock.now().realtime_ns - next_ns) for _ in files
                )
            )
            found.extend(there.sampler.take([(next_ns, units)], there.clock.now))
        assert found == wanted


def test_what_somebody_else_could_not_read_is_read_here() -> None:
    """Its reason is there then, and what is too large for a record has one, too."""
    clock = ManualClock(realtime_ns=1_000 * SECOND_NS)
    sampler = Sampler(TICK, {"w0/r0": Source(0, Gone()), "w0/r1": Source(1, Gone())})
    sampler.tick(clock.now)
    taken = [(1_000 * SECOND_NS + n * TICK, (None, (2**62, 2**62, 5))) for n in range(1, 10)]
    (batch,) = sampler.take(taken, clock.now)
    for of_tick in zip(batch.samples[::2], batch.samples[1::2], strict=True):
        assert [s.missing_reason for s in of_tick] == [
            "port_xmit_data: No such device",
            f"{2**63} bytes do not fit 63 bits",
        ]
        assert all(s.tx_bytes is None and s.read_delay_ns is None for s in of_tick)


def test_more_rnics_than_somebody_else_reads_are_left_here() -> None:
    """As before the first tick."""
    sampler = Sampler(TICK, {str(n): Source(n, Gone()) for n in range(65)})
    sampler.tick(ManualClock(realtime_ns=0).now)
    assert sampler.ticks() is None

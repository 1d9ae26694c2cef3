"""Training clusters with network faults, by an author who has not read what judges them.

The package builds worlds from the literature and from the record contract (`schemas`) alone. It
imports nothing else of this project, and nobody tunes anything to its seeds.

What must be found
------------------
A fault is drawn only where somebody's probes can meet it:

- It acts on a component that the forward path of at least one 5-tuple of a ping list crosses, as
  routing is before the fault. Of a latency fault these are at least two.
- A fault that loses packets loses at least 12 probes in expectation (repetitions not counted).
  Where a drawn strength and duration promise fewer, first the duration, then the strength is
  raised within its range; where even that is not enough, another place is drawn.
- A latency fault is on for at least 90 s, an intermittent one for at least 60 s in all.
- Nothing happens in the first six minutes, and nothing begins in the last two.

What counts as right
--------------------
`Injected.components` holds the component at which the fault sits, and those that nothing in the
records tells from it: components crossed by exactly the same 5-tuples of the lists (by forward
paths, the only ones that traces show), and cables parallel to a faulty one, since no record says
which of them a hop's address belongs to. `Injected.also_kinds` holds the kinds that are as right
because the state that names the kind never reached the broker in time.
"""

"""Captures of training jobs by an independent author, to judge inferred traffic skeletons.

Nobody who works on the inference reads this package or its draws, and its author has not read the
inference. `draw(seed, family)` of `arena.sealed_jobs.draw` gives a table of counters, the
metadata, and the truth. Nothing here imports more of the project than `schemas`.

A figure from a seed that somebody looked at to choose a constant is spent. Seeds below 10,000 are
those of this package's own tests and trials.

What is simulated
-----------------
`fleet` places ranks on hosts. `workload` draws a model and its costs. `schedules` says which stage
computes what when, `collectives` which RNICs exchange how much. `pipelined` and `sharded` put
these together to iterations, `runs` iterations to a job with checkpoints, evaluations and
stragglers. `ports` adds up all bytes, `background` those of no job, and `readers` gives what a
host or switch reads of the counters. `recipes` and `families` draw all of these.

Truth
-----
Endpoints are named `<host>/r<rail>`.

Pair
    Two RNICs of a job that send each other bytes in each training iteration, in one direction at
    least, as the algorithm of the collective has it: neighbours in a ring, parent and child in a
    tree, distances 1, 2, 4, ... of a power-step gather, all members of an all-to-all exchange,
    neighbouring stages of one replica and tensor part, the neighbours of a context ring.
    Acknowledgements make no pair. What stays in a host is none, and what happens only in
    checkpoints, in tests of idle hosts or by storage is none. Not left out: pairs with few bytes.
    With PXN, the pair is that of the two RNICs on the receiver's rail, which the bytes cross. The
    relaying RNIC may be that of another replica or stage.
Kind
    `pp`: activations and their gradients between stages, last to first stage of an interleaved
    schedule included, and the gradients of an embedding that first and last stage share. `dp`:
    sums of gradients and gathers of parameters, of experts too; with a context degree, the ranks
    of a context group belong to the gradient groups. `ep`: tokens. `cp`: keys and values.
Degrees
    dp · pp · tp · cp is the number of GPUs; ep divides dp, since expert groups are made of
    replicas. For fully sharded jobs dp is the number of data ranks, whether they hold copies or
    shards. A device that holds several parts of the model is one stage.
Stages
    Devices in the order in which a microbatch first crosses them. Stages of a job are disjoint and
    hold all its RNICs; so do its replicas. For DualPipe either direction is right.
Groups
    RNICs that one collective of a kind joins. Counters of its members are alike; which of them are
    neighbours in a ring or tree is a convention of the library that follows the ranks.

Unobservable
------------
`JobTruth.unobservable` names what no counter can show; `JobTruth.dp_seen` is the number of replicas
that a counter could tell apart.

dp
    Replicas that share hosts, in jobs without pipeline or inside an expert group that works in
    lockstep: a collective spreads its bytes evenly over the host's RNICs, so that they look like a
    tensor group. Not so where popular experts make their bytes differ.
pp
    A stage whose neighbours are in its own host, without gradients over the network: its RNICs are
    silent. Likewise `dp` of silent replicas.
order
    Stages follow each other by less than the errors of clocks and counters (`stage_shift_s`).
direction
    Bidirectional pipelines look the same from either end.
dp_pairs
    Gradients summed in switches: no pair of RNICs exchanges them. Pairs of kind `dp` are missing.
ep, cp
    Groups inside one host.

Never shown: neighbours within a group (see above), where neither other traffic nor an index of
hosts tells; tensor parallelism of a job that sends nothing. Order and direction of stages can be
faint: delays between stages of some milliseconds at ten ticks a second, or all forwards first.
"""

"""What a model costs: seconds of computation and bytes of messages, by transformer arithmetic.

Sizes of models, lengths of sequences, speeds of GPUs and links are drawn. Draws whose iteration is
too short or too long, or which spend most of it on communication, are thrown away.
"""

from dataclasses import dataclass, replace

import numpy as np

from arena.sealed_jobs.fleet import Degrees, FloatArray

HIDDEN = (2048, 3072, 4096, 5120, 6144, 8192, 12288)
DRAWS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Costs of one rank.

    Attributes
    ----------
    forward_s
        Forward of a microbatch through each part of a chain; shape (parts,).
    backward_ratio
        Backward over forward: 2, or 3 with activations computed again.
    hop_bytes
        Activations of a microbatch between two stages.
    gradient_bytes, parameter_bytes
        What is summed and what is gathered once an iteration; shape (stages,).
    expert_gradient_bytes
        Gradients of the rank's own experts.
    token_bytes
        What all-to-all exchanges send in a forward of one part, over all its layers.
    sequence_bytes
        Keys and values that go to the next rank of the context group in such a forward.
    embedding_bytes
        Gradients of a shared embedding between first and last stage; 0: not shared.
    segments
        Into how many bursts the exchanges of a part are cut.
    bytes_per_s
        What a port carries.
    optimizer_s
        Time for norm of gradients, optimizer step and logging.
    """

    forward_s: FloatArray
    backward_ratio: float
    hop_bytes: float
    gradient_bytes: FloatArray
    parameter_bytes: FloatArray
    expert_gradient_bytes: float
    token_bytes: float
    sequence_bytes: float
    embedding_bytes: float
    segments: int
    bytes_per_s: float
    optimizer_s: float

    def scaled(self, factor: float) -> "Workload":
        """Return a workload with all durations and messages longer by a factor."""
        return replace(
            self,
            forward_s=self.forward_s * factor,
            hop_bytes=self.hop_bytes * factor,
            gradient_bytes=self.gradient_bytes * factor,
            parameter_bytes=self.parameter_bytes * factor,
            expert_gradient_bytes=self.expert_gradient_bytes * factor,
            token_bytes=self.token_bytes * factor,
            sequence_bytes=self.sequence_bytes * factor,
            embedding_bytes=self.embedding_bytes * factor,
            optimizer_s=self.optimizer_s * factor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What is given when a workload is drawn.

    Attributes
    ----------
    parts
        Parts of the model in one chain.
    micros
        Microbatches of an iteration and replica.
    sharing
        GPUs for each RNIC.
    link_gbps
        Line rate of a port.
    seconds
        Least and greatest duration of an iteration.
    token_peak
        Bytes through the busiest port per byte that a rank exchanges with the others' experts.
    """

    degrees: Degrees
    parts: int
    micros: int
    sharing: float
    link_gbps: float
    seconds: tuple[float, float]
    token_peak: float = 0.0


def draw_workload(rng: np.random.Generator, frame: Frame) -> Workload:
    """Return the workload that fits the frame best among many."""
    best, least = None, np.inf
    for _ in range(DRAWS):
        workload, excess = _draw(rng, frame)
        if excess < least:
            best, least = workload, excess
        if excess <= 0:
            break
    if best is None:
        raise ValueError("no workload drawn")
    return best


def _draw(rng: np.random.Generator, frame: Frame) -> tuple[Workload, float]:
    """Draw a workload, and say by how much it misses the frame."""
    degrees = frame.degrees
    split = degrees.tp * degrees.cp
    hidden = int(rng.choice(HIDDEN))
    longest = (32768, 65536, 131072) if degrees.cp > 1 else (2048, 4096, 8192)
    tokens = int(rng.choice(longest)) * int(rng.choice([1, 1, 2, 4]) if degrees.cp == 1 else 1)
    sequence = tokens if degrees.cp > 1 else min(tokens, 8192)
    layers = int(rng.integers(1, 13))
    flops_per_s = float(np.exp(rng.uniform(np.log(60e12), np.log(500e12))))
    layer_s = 24 * tokens * hidden**2 * (1 + sequence / (6 * hidden)) / split / flops_per_s
    forward_s = np.full(frame.parts, layers * layer_s)
    if rng.random() < 0.6:  # the output layer is as dear as some layers, and not made up for
        forward_s[-1] += layer_s * rng.uniform(0.3, 1.2)
    if frame.parts > 2 and rng.random() < 0.4:  # layers that do not divide evenly
        forward_s[int(rng.integers(frame.parts))] += layer_s * rng.choice([-1, 1]) * (layers > 2)
    ratio = float(rng.choice([2.0, 2.0, 3.0]))
    rate = frame.link_gbps * 1e9 / 8 * rng.uniform(0.6, 0.92)
    sequence_parallel = degrees.tp == 1 or rng.random() < 0.8
    hop_bytes = 2.0 * tokens * hidden / degrees.cp / (degrees.tp if sequence_parallel else 1)

    stage_parts = frame.parts / degrees.pp
    numbers = 12 * hidden**2 * layers * stage_parts / degrees.tp
    embedding = float(rng.choice([32000, 50304, 100352, 128256, 151936])) * hidden / degrees.tp
    of_stage = np.full(degrees.pp, numbers)
    of_stage[0] += embedding
    if degrees.pp > 1:
        of_stage[-1] += embedding
    gradient_size = float(rng.choice([2.0, 4.0]))
    shared = degrees.pp > 1 and rng.random() < 0.3
    experts = degrees.ep > 1
    wide = rng.uniform(1.0, 4.0) * numbers if experts else 0.0
    picked, width = int(rng.choice([1, 2, 4, 6])), float(rng.choice([1.5, 2.0]))
    moe_layers = max(1, layers // int(rng.choice([1, 1, 2])))
    token_bytes = 2 * moe_layers * tokens / split * picked * hidden * width if experts else 0.0
    keys = hidden / float(rng.choice([1, 4, 8]))
    sequence_bytes = 0.0
    if degrees.cp > 1:
        steps = degrees.cp - 1
        sequence_bytes = layers * steps * 2 * 2 * tokens / degrees.cp * keys / degrees.tp

    port_s = frame.sharing / rate
    step_s = layers * layer_s
    work_s = frame.micros * stage_parts * (1 + ratio) * step_s
    token_s = token_bytes * frame.token_peak / rate
    inside_s = 2 * frame.micros * stage_parts * (token_s + sequence_bytes * port_s)
    sums_s = 2 * of_stage.max() * gradient_size * port_s * (degrees.dp * degrees.cp > 1)
    fill_s = (degrees.pp - 1) * (1 + ratio) * step_s
    total_s = work_s + fill_s + inside_s + sums_s
    low, high = frame.seconds
    excess = max(
        np.log(low / total_s),
        np.log(total_s / high),
        np.log(hop_bytes * port_s / (0.5 * step_s)) if degrees.pp > 1 else -1.0,
        np.log(sums_s / (0.5 * work_s)) if sums_s else -1.0,
        np.log(inside_s / (0.8 * work_s)) if inside_s else -1.0,
    )
    workload = Workload(
        forward_s=forward_s,
        backward_ratio=ratio,
        hop_bytes=hop_bytes,
        gradient_bytes=of_stage * gradient_size,
        parameter_bytes=of_stage * 2.0,
        expert_gradient_bytes=wide * gradient_size,
        token_bytes=token_bytes,
        sequence_bytes=sequence_bytes,
        embedding_bytes=embedding * gradient_size if shared else 0.0,
        segments=int(min(layers, 3)),
        bytes_per_s=rate,
        optimizer_s=float(min(0.05 * total_s, rng.uniform(0.02, 0.4))),
    )
    return workload, float(excess)

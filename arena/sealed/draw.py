"""Draws worlds: a cluster, when what happens, and the truth.

| family | what it holds |
|---|---|
| `hard` | one to three faults that lose everything of somebody's |
| `gray` | one or two faults that lose a share, or delay, always or in pulses |
| `confounders` | look-alikes only, twenty an hour |
| `mixed` | two faults of any kind among as many look-alikes |

Two faults of a world follow each other, or overlap in time and the first clears first.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from arena.sealed import faults_gray as gray
from arena.sealed import faults_hosts as hosts
from arena.sealed import faults_underlay as underlay
from arena.sealed.cluster import draw_cluster
from arena.sealed.confounders import CONFOUNDERS
from arena.sealed.draft import LEAD_S, TAIL_S, Draft, NoPlaceError
from arena.sealed.hashing import text_word
from arena.sealed.plan import Plan
from arena.sealed.queues import draw_queues
from arena.sealed.states import draw_readers
from arena.sealed.stream import SealedWorld
from schemas.units import SECOND_NS

CONFOUNDERS_AN_HOUR: Final = 20.0
LEAST_DURATION_S, MOST_DURATION_S = 900, 1500
# First of March 2025, 00:00 UTC.
EPOCH_NS: Final = 1_740_787_200 * SECOND_NS
OVERLAPPING: Final = 0.5
# Of one-way trips. Data centres report 1e-5 to 1e-4 of all packets; lossless classes lose less.
BACKGROUND_LOSS: Final = (3e-7, 1e-5)

Fault = Callable[[Draft, float, float], None]

HARD: Final[Mapping[str, Fault]] = {
    "port_down": underlay.port_down,
    "silent_port": underlay.silent_port,
    "rnic_port_down": underlay.rnic_port_down,
    "bond_error": underlay.bond_error,
    "switch_down": underlay.switch_down,
    "rnic_unreachable": underlay.rnic_unreachable,
    "device_gone": underlay.device_gone,
    "gid_change": underlay.gid_change,
    "acl_error": underlay.acl_error,
    "missing_route": underlay.missing_route,
    "pfc_deadlock": underlay.pfc_deadlock,
    "host_down": hosts.host_down,
    "container_crash": hosts.container_crash,
    "vswitch_down": hosts.vswitch_down,
    "flow_missing": hosts.flow_missing,
    "flow_loop": hosts.flow_loop,
    "agent_dead": hosts.agent_dead,
    "agent_unresponsive": hosts.agent_unresponsive,
}
GRAY: Final[Mapping[str, Fault]] = {
    "packet_loss": gray.packet_loss,
    "crc_error": gray.crc_error,
    "buffer_loss": gray.buffer_loss,
    "port_flapping": underlay.port_flapping,
    "high_latency": gray.high_latency,
    "pcie_downgrade": gray.pcie_downgrade,
    "pcie_error": gray.pcie_error,
    "gpudirect_missing": gray.gpudirect_missing,
    "acs_ats_wrong": gray.acs_ats_wrong,
    "hugepage_mismatch": gray.hugepage_mismatch,
    "not_offloaded": gray.not_offloaded,
    "repetitive_offload": gray.repetitive_offload,
    "not_using_rdma": gray.not_using_rdma,
    "congestion_control_off": gray.congestion_control_off,
    "congestion": gray.congestion,
}
AGENTS: Final[Mapping[str, Fault]] = {
    "agents_silent": hosts.agents_silent,
    "agent_displaced": hosts.agent_displaced,
    "probing_stopped": hosts.probing_stopped,
    "list_refused": hosts.list_refused,
    "agent_clock": hosts.agent_clock,
}
# What the field meets most often is drawn more often.
WEIGHTS: Final[Mapping[str, float]] = {
    "packet_loss": 3.0,
    "high_latency": 3.0,
    "not_offloaded": 2.0,
}
FAMILIES: Final = ("hard", "gray", "confounders", "mixed")


def draw(seed: int, family: str) -> SealedWorld:
    """Return the world of a seed: the same one every time.

    Raises
    ------
    ValueError
        If there is no such family.
    """
    if family not in FAMILIES:
        raise ValueError(f"no family {family!r}; there are {', '.join(FAMILIES)}")
    entropy = (seed, text_word(family))
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
    cluster = draw_cluster(f"sealed-{family}-{seed}", rng)
    duration_s = int(rng.integers(LEAST_DURATION_S, MOST_DURATION_S + 1))
    start_ns = EPOCH_NS + (seed % 20_000) * 3_600 * SECOND_NS + int(rng.integers(SECOND_NS))
    draft = Draft(
        cluster=cluster, plan=Plan(), readers=draw_readers(rng), queues=draw_queues(cluster, rng),
        rng=rng, start_ns=start_ns, duration_s=float(duration_s),
    )  # fmt: skip
    if family in ("confounders", "mixed"):
        _draw_confounders(draft, alone=family == "confounders")
    if family == "hard":
        _draw_faults(draft, HARD, 1 + draft.chosen(3), LONGEST_HARD_S)
    elif family == "gray":
        _draw_faults(draft, GRAY, 1 + int(rng.random() < 0.4), LONGEST_GRAY_S)
    elif family == "mixed":
        _draw_faults(draft, {**HARD, **GRAY, **AGENTS}, 2, LONGEST_GRAY_S)
    return SealedWorld(
        cluster=cluster.name, start_ns=start_ns, duration_s=duration_s,
        injected=tuple(draft.injected), site=cluster, plan=draft.plan, readers=draft.readers,
        queues=draft.queues, background=draft.log_uniform(*BACKGROUND_LOSS),
        republish_s=float(rng.choice([30.0, 600.0])), entropy=entropy,
    )  # fmt: skip


LONGEST_HARD_S: Final = 300.0
LONGEST_GRAY_S: Final = 900.0


def _draw_faults(draft: Draft, kinds: Mapping[str, Fault], count: int, longest_s: float) -> None:
    """Put faults into stretches of time, one after the other or overlapping."""
    rng = draft.rng
    first_s, last_s = LEAD_S + 10.0, draft.duration_s - 20.0
    if count == 2 and rng.random() < OVERLAPPING:
        # The first clears while the second lasts.
        length_s = last_s - first_s
        begin_s = first_s + float(rng.uniform(0.0, 0.1)) * length_s
        middle_s = begin_s + float(rng.uniform(0.15, 0.3)) * length_s
        clear_s = middle_s + float(rng.uniform(0.15, 0.3)) * length_s
        spans = [(begin_s, clear_s), (middle_s, clear_s + float(rng.uniform(0.2, 0.35)) * length_s)]
    else:
        slot_s = (last_s - first_s) / count
        spans = []
        for number in range(count):
            begin_s = first_s + number * slot_s + float(rng.uniform(0.0, 0.12)) * slot_s
            # The next one begins when what this one left behind is over.
            room_s = slot_s * (number + 1) + first_s - begin_s - (0.0 if count == 1 else 70.0)
            length_s = min(float(rng.uniform(0.6, 1.0)) * room_s, longest_s)
            spans.append((begin_s, begin_s + length_s))
    for begin_s, end_s in spans:
        if begin_s > draft.duration_s - TAIL_S:
            continue
        lasts = end_s > last_s - 60.0 and rng.random() < 0.5
        _draw_one(draft, kinds, begin_s, draft.duration_s if lasts else end_s)


def _draw_one(draft: Draft, kinds: Mapping[str, Fault], begin_s: float, end_s: float) -> None:
    weights = np.array([WEIGHTS.get(name, 1.0) for name in kinds])
    names = list(kinds)
    order = draft.rng.choice(len(names), len(names), replace=False, p=weights / weights.sum())
    for index in order:
        try:
            kinds[names[int(index)]](draft, begin_s, end_s)
        except NoPlaceError:
            continue
        return


def _draw_confounders(draft: Draft, *, alone: bool) -> None:
    """Put look-alikes at random times, twenty an hour; `alone`: no faults follow."""
    rng = draft.rng
    first_s, last_s = LEAD_S, draft.duration_s - 40.0
    count = round((last_s - first_s) * CONFOUNDERS_AN_HOUR / 3600.0)
    names = [name for name in CONFOUNDERS if alone or name != "drained_switch"]
    for at_s in np.sort(rng.uniform(first_s, last_s, count)):
        for index in rng.permutation(len(names)):
            try:
                CONFOUNDERS[names[int(index)]](draft, float(at_s))
            except NoPlaceError:
                continue
            break

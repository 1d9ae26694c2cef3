"""From cases to claims: when evidence suffices, and when to wait for more.

Each reason to wait avoids a false alarm:

* All bad 5-tuples have one agent in common: it may have died. A heartbeat from after the onset must
  show that it lives, or its death is declared.
* Everything that reaches one agent is bad: a stalled process looks the same until it is back and
  three rounds were answered. One that has lost probes of its own was not stalled.
* Most 5-tuples through a component are unknown, since their agents' heartbeats are late: those that
  are well would clear it. The agents are heard soon, or missed.
* Few 5-tuples: partial loss causes three consecutive losses on one 5-tuple now and then; a black
  hole for a single 5-tuple lasts.
* A cable reads no addresses, a switch does. Where others cross a cable in the same direction and
  are well, it is not cut: the next counts tell whether it loses a share, or a switch some 5-tuples.
* Queues are full for a while: a job's burst is no fault.
* Replies that another fault delays make 5-tuples late that do not cross it.
* A rise of less than a microsecond or two is no fault.
* Loss and latency appear on one 5-tuple after another: their detectors need several probes or a
  window.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import log
from statistics import median

from localizer.config import CoreConfig
from localizer.facts.bad_flows import BadFlow
from localizer.facts.inputs import Sources
from localizer.facts.states import SPECIFIC
from localizer.inference.causes import Reason
from localizer.inference.detection_lag import WINDOW_SPREAD_NS, began_ns, cut_share
from localizer.inference.pooled_latency import LEAST_SHARE, divergence
from localizer.inference.pooled_moments import is_shift
from localizer.network.topology import Topology
from localizer.verdict.cases import (
    ROUND_NS,
    Case,
    common_agents,
    hop_facts,
    loss_counts,
    rises_ns,
)
from localizer.verdict.catalogue import CUT_SHARE, GRADUAL, KINDS, LOSS, FaultKind
from localizer.verdict.claims import STOPS, Claim, make_claim
from localizer.verdict.incident import Incident
from localizer.verdict.kind_model import KindModel, Symptoms
from localizer.verdict.state_claims import STATE_CONFIDENCE
from schemas.enums import AnomalyFamily, AnomalyKind, ComponentKind
from schemas.ids import FlowId
from schemas.records import FaultEvent
from schemas.units import MS_NS, SECOND_NS, us_to_ns

# Of a fault that only a state shows. Routes may lead around it, or nobody probes there any more.
NO_LOSS_NOW = "no probe is lost there now"
# Traces of lost 5-tuples are available after this time: two timeouts, and slack.
TRACE_NS = 2_500 * MS_NS
# The next trace of the same 5-tuple comes at most this much later.
SECOND_TRACE_NS = 12 * SECOND_NS
# So long after an agent's first heartbeat it is known that its 5-tuples are well again if it had
# paused: of each one probe a round has to be answered three times, and the last round has to be
# reported. The rest is for an agent whose heartbeats go on while it answers nobody for two seconds.
ANSWERED_NS = 4 * SECOND_NS
# From this share of bad 5-tuples at an agent, a stall of the agent explains them.
STALL_SHARE = 0.9
# An agent's lost probes to so many others that are well are not these others' pauses.
LEAST_PEERS = 2
# No fault is opened with more doubt than this.
MAX_DOUBT = 0.05
# Belief from which on a rival matters.
RIVAL = 0.05
# Jobs exchange data in bursts of up to a minute, which fill queues.
BURST_NS = 60 * SECOND_NS
# From the begin of the first window that a burst delays until the value of the last is repeated: a
# burst is in three windows of 30 s at most, whose results may be late for 5 s
# (`allowed_lateness_s`), agents close windows one after the other, and there is a repetition every
# 5 s. The value of a fourth window is there 125 s after the begin of the first at the earliest.
BURST_WINDOWS_NS = BURST_NS + 30 * SECOND_NS + 5 * SECOND_NS + WINDOW_SPREAD_NS + 5 * SECOND_NS
# The last answers tell sooner that a burst is over: they are twelve seconds', looked at every five.
# Most are as before by then.
BRIEF_BURST_NS = BURST_NS + 17 * SECOND_NS
# What only the last answers show has to show for so long since the pooled test found it as all of
# them need to be new. A route that converges, a pause, a card that is reset are over by then; what
# recurs is not.
BLIP_NS = 15 * SECOND_NS
# What it looks like. A state or a table that shows another kind shows that it is none.
BURST_KINDS = frozenset({"high_latency", "congestion"})
# What says that every packet is delayed.
SHIFTED = frozenset({AnomalyKind.LATENCY_TREND, AnomalyKind.BRIEF_LATENCY})
# Least rise of the medians as a share of that of the upper quartiles, over all late 5-tuples, where
# it is no queue that delays. By one that is never empty medians rise by 0.50 of it, by two, four
# and eight of them by 0.62, 0.72 and 0.79 (quantiles of Erlang's distribution): as many as a burst
# fills on the way of a probe and its reply through three tiers. A constant delay moves both alike.
LEVEL_SHARE = 0.8
# A delay at one component is equal for everything that crosses it: at least this share of the rises
# must lie within a factor of two of their median.
COHERENT_SHARE = 0.6
# Share of the rises that are no less than this, where a state names what delays some packets.
MATTER_SHARE = 0.25
# A rise of less is no fault: what an endpoint's own packets cost wanders by a microsecond, and a
# round trip through a fabric takes ten to twenty. Tests of many 5-tuples together see less.
LEAST_RISE_NS = 1_500
# Late replies of an open fault are excluded by this log-likelihood ratio: that so many come back
# through it happens once in a thousand times, and a case is judged a few times only.
ECHO_SURE = log(1_000)
# Where all replies come back through it, none is too many.
MOST_RETURNED = 0.99


class Judge:
    """Turns cases into claims."""

    def __init__(self, config: CoreConfig, sources: Sources) -> None:
        self._config = config
        self._sources = sources
        self._kinds = KindModel(sources.topology, sources.states, sources.findings)

    def claim(
        self,
        case: Case,
        now_ns: int,
        owned: frozenset[FlowId] = frozenset(),
        *,
        others: frozenset[str] = frozenset(),
        returned: Callable[[str], int] = lambda _: 0,
    ) -> Claim | None:
        """Return what a case claims; None if no component and no agent is at fault.

        Parameters
        ----------
        owned
            5-tuples of the network's open faults.
        others
            Other components that are at fault at the same time.
        returned
            Says how often the fault of a component has come back.
        """
        if not case.open or case.cause.reason in (Reason.GLOBAL, Reason.REPLY, Reason.STARVED):
            return None
        if case.cause.reason is Reason.COMPONENT:
            if case.evidence.family is AnomalyFamily.LOSS:
                came_back = returned(case.cause.name)
                return self._loss(case, now_ns, others, came_back, beside=bool(others or owned))
            return self._latency(case, now_ns, others)
        return self._agent(case, now_ns, owned)

    def standing(self, incident: Incident, now_ns: int) -> Claim | None:
        """Return the claim of states that a fault is still there which probes show no more.

        The state must have gone out of order with the fault; once it holds the fault open it only
        has to stay so, whoever reads it. Of a fault that was resolved it must have been read since
        probes were well; else the next reading is waited for.
        """
        event = incident.event
        states = self._sources.states
        if incident.group != LOSS or event.fault_kind in GRADUAL or not states.bad:
            return None
        if incident.stands:
            at, kind = event.component_id, KINDS[event.fault_kind]
            held = states.lasts(at, kind.name, now_ns) and not self._kinds.in_maintenance(at)
            return self._stands(event, at, kind, event.evidence) if held else None
        symptoms = Symptoms(
            family=AnomalyFamily.LOSS,
            cut_share=1.0,
            spans=((us_to_ns(event.onset_at), us_to_ns(event.opened_at)),),
        )
        since_ns = 0 if incident.open else incident.quiet_ns or incident.changed_ns
        places = dict.fromkeys((event.component_id, *(c.component_id for c in event.candidates)))
        for place in (event.component_id,) if event.decided else places:
            # Of rules of switches it is not known any more what crosses them.
            named = self._kinds.find(place, symptoms, crossed=(frozenset(),))
            at, kind = named.component_id, named.kind
            if (
                named.fresh
                and states.lasts(at, kind.name, now_ns, since_ns, changed=True)
                and not self._kinds.in_maintenance(at)
            ):
                return self._stands(event, at, kind, [*named.facts, NO_LOSS_NOW])
        return None

    def _stands(self, event: FaultEvent, at: str, kind: FaultKind, facts: Iterable[str]) -> Claim:
        """Return the claim that a fault is still at a place; whom it hit and stops stays told."""
        confidence = max(event.confidence, STATE_CONFIDENCE)
        claim = make_claim(
            self._sources,
            kind,
            at,
            decided=True,
            confidence=confidence,
            candidates=[(at, confidence)],
            keys=frozenset(),
            good=event.good_paths + event.bad_paths,
            onset_ns=us_to_ns(event.onset_at),
            evidence=[*facts, *(line for line in event.evidence if line.startswith(STOPS))],
            ready=True,
            tasks=frozenset(event.tasks),
        )
        return replace(claim, headline=f"{at}: {kind.symptom}; {NO_LOSS_NOW}")

    def _loss(
        self, case: Case, now_ns: int, others: frozenset[str], returned: int, *, beside: bool
    ) -> Claim:
        config = self._config
        share = cut_share(case.open)
        age_ns = now_ns - case.grown_ns(1)
        sure = _is_sure(case)
        decided = case.share >= config.confidence and sure
        count = case.count
        if share >= CUT_SHARE:
            # Beside another fault, an apparent second one may be replies that the first one loses.
            # Traces can tell and are made at once; few 5-tuples need two of them.
            wait_ns = config.few_ns + (SECOND_TRACE_NS if beside else 0)
            enough = count >= config.min_flows or age_ns >= wait_ns
            untraced = sum(not flow.traced for flow in case.open)
            if beside and age_ns < TRACE_NS and 2 * untraced > len(case.open):
                enough = False
            hidden = case.evidence.hidden(case.cause.name)
            if hidden > count + case.good and age_ns < config.stall_ns:
                enough = False
            due = decided or age_ns >= (config.few_ns if _is_contested(case) else config.settle_ns)
        else:
            # Lossy 5-tuples of one pair were flagged together and count once. Those without recent
            # losses only wait to be cleared.
            witnesses = case.open if decided else case.own
            pairs = len({flow.key[:2] for flow in witnesses if _loses(flow)})
            # For lasting loss, one pair less is enough.
            lasting = age_ns >= config.loss_settle_ns
            # A leak is found by the losses of minutes, and chance is ruled out: half a minute more
            # hardly brings another loss, or tells which of several components it is. And none
            # tells an RNIC from its only cable.
            leaks = _leaks(case)
            enough = pairs >= config.min_flows - (lasting or leaks)
            told = decided or leaks or _at_port(case, self._sources.topology) >= config.confidence
            due = age_ns >= (config.loss_min_ns if told else config.loss_settle_ns)
        ready = (
            enough
            and due
            and sure
            and self._agents_live(case)
            and not self._may_be_stall(case, now_ns)
        )
        symptoms = Symptoms(
            family=AnomalyFamily.LOSS,
            cut_share=share,
            bad_share=count / max(1, count + case.good),
            returned=returned,
            spans=case.spans,
        )
        cut = round(share * count)
        facts = [
            f"{cut} 5-tuples through it are cut off, {count - cut} lose packets, "
            f"{case.good} are well",
            *loss_counts(case),
        ]
        return self._make(case, symptoms, others, decided=decided, ready=ready, facts=facts)

    def _latency(self, case: Case, now_ns: int, others: frozenset[str]) -> Claim:
        config = self._config
        age_ns = now_ns - case.grown_ns(config.min_flows)
        decided = case.share >= config.confidence and case.doubt <= MAX_DOUBT
        wait_ns = config.latency_min_ns if decided else config.latency_settle_ns
        if not decided and _best_two(case) >= config.confidence:
            # It is one of two, such as an RNIC and its cable. Once all agents have closed the
            # window, nothing more comes that could tell which.
            wait_ns = WINDOW_SPREAD_NS
        if _is_brief(case):
            # The looks of all agents are there by then: no window closes later that tells more.
            wait_ns = max(config.latency_min_ns, BLIP_NS)
        witnesses = case.open if decided else case.own
        pairs = {frozenset(flow.key[:2]) for flow in witnesses}
        shifts = [s.shift_ns for f in case.open for s in f.symptoms if s.shift_ns is not None]
        ready = (
            len(witnesses) >= config.min_flows
            and len(pairs) >= 2
            and age_ns >= wait_ns
            and case.doubt <= MAX_DOUBT
            and self._agents_live(case)
            and self._both_ways(case)
        )
        shifted = ready and _is_one_delay(shifts) and not _may_be_echo(case, config.min_flows)
        matters = ready and decided and _some_matter(shifts)
        sudden = any(s.kind is not AnomalyKind.LATENCY_TREND for f in case.open for s in f.symptoms)
        facts = [f"{case.count} 5-tuples through it are late, {case.good} are well"]
        if shifts:
            facts.append(f"their round trips rose by {median(shifts) / MS_NS:.3f} ms")
        symptoms = Symptoms(family=AnomalyFamily.LATENCY, sudden=sudden, spans=case.spans)
        claim = self._make(
            case,
            symptoms,
            others,
            decided=decided,
            ready=shifted,
            ready_if_named=lambda named: (
                matters and not _may_be_echo(case, config.min_flows, named)
            ),
            facts=facts,
        )
        # Of two bursts soon after another some 5-tuples are in both. Most are in one.
        most = max(config.min_flows, (len(case.bad) + 1) // 2)
        lasts = self._outlasts(case, most, now_ns)
        # Nothing but another kind's state tells what delays some packets from a job's iterations.
        some = sum(all(s.of_some for s in flow.symptoms) for flow in case.open)
        lasts = (lasts or self._shifted(case)) and 2 * some < len(case.open)
        if claim.kind.name in BURST_KINDS and not lasts:
            return replace(claim, ready=False)
        return claim

    def _agent(self, case: Case, now_ns: int, owned: frozenset[FlowId]) -> Claim | None:
        """Claim an agent that works badly: no page, unless all is lost on it for long."""
        if (
            case.evidence.family is not AnomalyFamily.LOSS
            or cut_share(case.open) < CUT_SHARE
            or len(case.open) < self._config.min_flows
        ):
            return None
        # Only 5-tuples that are bad now and belong to no other fault count: neither brief cuts, nor
        # those that another component cut off, nor those that could not be cleared while the agent
        # was away.
        away_ns = self._sources.liveness.returned_ns(case.cause.name) or 0
        if now_ns - away_ns < self._config.everything_ns:
            return None
        own = [flow for flow in case.open if flow.key not in owned]
        least = max(self._config.min_flows, (len(case.open) + 1) // 2)
        if not self._is_no_pause(case.cause.name, own, least, now_ns):
            return None
        facts = [f"{case.count} 5-tuples at its endpoints are cut off, the network is not"]
        return make_claim(
            self._sources,
            KINDS["agent_unresponsive"],
            case.cause.name,
            decided=case.share >= self._config.confidence,
            confidence=case.share,
            candidates=[(case.cause.name, case.share)],
            keys=frozenset(flow.key for flow in case.open) | case.unseen,
            good=case.good,
            onset_ns=min(flow.onset_ns for flow in case.bad),
            evidence=facts,
            ready=case.share >= self._config.confidence and self._agents_live(case),
            component_kind=ComponentKind.AGENT,
        )

    def _is_no_pause(self, agent: str, own: list[BadFlow], least: int, now_ns: int) -> bool:
        """Return whether so many 5-tuples are cut off for longer than after a pause of the agent.

        Three rounds clear them once it answers again. They count from when it became known that
        they are cut off, or from when a heartbeat has shown that the process does not pause. That
        says nothing of what became known long after it began: it may be well again already.
        """
        stall_ns = self._config.stall_ns
        if sum(now_ns - flow.seen_ns >= stall_ns for flow in own) >= least:
            return True
        fresh = [flow for flow in own if flow.seen_ns - flow.onset_ns <= stall_ns]
        if len(fresh) < least:
            return False
        began = began_ns(sorted(fresh, key=lambda flow: flow.onset_ns)[:least])
        lived_ns = self._sources.liveness.lived_ns(agent, began)
        return lived_ns is not None and now_ns >= lived_ns + ANSWERED_NS

    def _agents_live(self, case: Case) -> bool:
        """Return whether every agent common to all open 5-tuples lived after the onset."""
        # A prober whose clock is ahead dates the onset after its detection.
        onset_ns = min(min(flow.onset_ns, flow.seen_ns) for flow in agents_must_live_since(case))
        alive = self._sources.liveness.alive_after
        return all(alive(agent, onset_ns) for agent in common_agents(case.open))

    def _may_be_stall(self, case: Case, now_ns: int) -> bool:
        """Return whether a process that paused, or answers no more, explains the case as well."""
        since = agents_must_live_since(case)
        # Beside a leak, those that are cut off may be a pause's, if it were no case without them.
        cut = [flow for flow in case.open if flow.cut]
        if self._may_be_pause(case, cut if 2 * len(cut) >= len(case.open) else since, now_ns):
            return True
        age_ns = now_ns - min(flow.seen_ns for flow in since)
        onset_ns = min(flow.onset_ns for flow in since)
        for agent in common_agents(case.open):
            well = case.evidence.well(agent)
            if case.count < STALL_SHARE * (case.count + well):
                continue
            lives = self._sources.liveness.alive_after(agent, onset_ns + SECOND_NS)
            paused = age_ns < ROUND_NS or not _probes_itself(case, agent)
            if not lives or (paused and age_ns < self._config.stall_ns):
                return True
        return False

    def _may_be_pause(self, case: Case, since: Sequence[BadFlow], now_ns: int) -> bool:
        """Return whether a host whose agents paused for a moment explains 5-tuples of a case.

        Nothing of its own is lost, as from agents that send and do not answer: a cut would take the
        replies to their own probes, too. A round shows whether these get on, and whether all that
        is sent to the host is lost. If most of it is well, a pause was so short that few 5-tuples
        lost all that they sent in a round: they are well again once three rounds were answered.
        """
        host_of = self._sources.roster.host_of
        hosts = {host_of(flow.key[1]) or flow.responder for flow in since}
        agents = {flow.responder for flow in since}
        if len(hosts) > 1 or None in hosts | agents:
            return False
        symptoms = [s for flow in since for s in flow.symptoms]
        # Single losses of before are no part of a cut.
        symptoms = [s for s in symptoms if s.kind is AnomalyKind.CONNECTIVITY] or symptoms
        age_ns = now_ns - min(s.seen_ns for s in symptoms)
        onset_ns = min(s.onset_ns for s in symptoms)
        well = sum(case.evidence.well(str(agent)) for agent in agents)
        if well <= case.count - len(case.open) + len(since):
            return age_ns < ROUND_NS and len(agents) == 1
        alive = self._sources.liveness.alive_after
        return age_ns < ROUND_NS or (
            age_ns < ANSWERED_NS and all(alive(str(agent), onset_ns) for agent in agents)
        )

    def _both_ways(self, case: Case) -> bool:
        """Return whether latency at an agent shows both ways; that of a busy process does not."""
        return all(
            any(flow.prober == agent for flow in case.open)
            and any(flow.responder == agent for flow in case.open)
            for agent in common_agents(case.open)
        )

    def _outlasts(self, case: Case, most: int, now_ns: int) -> bool:
        """Return whether so many 5-tuples have been late without a pause for longer than a burst.

        That is told by windows (LATENCY, WEAK_LATENCY) as new ones come that are late, not by the
        clock: the window that ends a burst closes when its agent's turn comes and its results are
        in. Or by their last answers (BRIEF_LATENCY).
        """
        brief = self._sources.brief_latencies
        boards = (
            (self._sources.anomalies, AnomalyKind.LATENCY),
            (self._sources.weak_latencies, AnomalyKind.WEAK_LATENCY),
        )
        lasting = 0
        for flow in case.open:
            late = (board.open(flow.key).get(kind) for board, kind in boards)
            last = brief.open(flow.key).get(AnomalyKind.BRIEF_LATENCY)
            lasting += (
                any(s is not None and s.renewed_ns - s.onset_ns > BURST_WINDOWS_NS for s in late)
            ) or (
                last is not None and not last.of_some and now_ns - last.onset_ns >= BRIEF_BURST_NS
            )
        return lasting >= most

    def _shifted(self, case: Case) -> bool:
        """Return whether every packet is delayed, or for half an hour; a burst of the job does not.

        The first is told by the shape of each 5-tuple's windows (WEAK_LATENCY), or of its last
        answers (BRIEF_LATENCY). Thirty answers that wait in several queues have the shape of a
        shift once in ten windows or more, and it is remembered while they are late: so that of all
        windows with an alarm together is asked, too.
        """
        weak = self._sources.weak_latencies
        shifted = sum(
            AnomalyKind.WEAK_LATENCY in weak.open(flow.key)
            or any(s.kind in SHIFTED and not s.of_some for s in flow.symptoms)
            for flow in case.open
        )
        return 2 * shifted >= len(case.open) and not (
            by_queues(case.open) or (_is_brief(case) and by_brief_queues(case.open))
        )

    def _make(
        self,
        case: Case,
        symptoms: Symptoms,
        others: frozenset[str],
        *,
        decided: bool,
        ready: bool,
        ready_if_named: Callable[[float], bool] = lambda _: False,
        facts: list[str],
    ) -> Claim:
        """Return the claim of a case.

        `ready_if_named`: whether it is ready as well where a state that began with it names a kind
        that no burst of a job looks like, by how much that says.
        """
        name, onset_ns = case.cause.name, case.onset_ns
        candidates = [(c.name, s) for c, s in case.shares if c.reason is Reason.COMPONENT]
        replies = case.evidence.replies
        judged = self._kinds.find(
            name,
            symptoms,
            others,
            (frozenset((*f.components, *replies.shares(*f.key[:2]))) for f in case.open),
        )
        confidence = case.share
        facts[:0] = judged.facts
        if judged.fresh and judged.kind.name in SPECIFIC - BURST_KINDS:
            ready = ready or ready_if_named(judged.evidence)
        if judged.component_id != name and judged.fresh:
            # For the probes this component is the same place, and its state shows the reason.
            known = {name := judged.component_id}
            if self._sources.topology.crossed_as(name) == case.cause.name:
                # Of parallel cables that one stood for all.
                known.add(case.cause.name)
            else:
                confidence = max(confidence, sum(s for _, s in candidates[:2]))
            candidates = [(name, confidence), *((c, s) for c, s in candidates if c not in known)]
            decided = confidence >= self._config.confidence and case.doubt <= MAX_DOUBT
        equal = [c for c, s in candidates if c != name and abs(s - confidence) < 1e-6]
        if equal:
            facts.append(f"the evidence cannot tell it from {', '.join(equal[:8])}")
        facts += hop_facts(case)
        agents = sorted(common_agents(case.open))
        if agents:
            facts.append(f"{', '.join(agents)} sent heartbeats after it began")
        return make_claim(
            self._sources,
            judged.kind,
            name,
            decided=decided,
            confidence=confidence,
            candidates=candidates,
            keys=frozenset(flow.key for flow in case.open) | case.unseen,
            good=case.good,
            onset_ns=onset_ns,
            evidence=facts,
            ready=ready and not self._kinds.in_maintenance(name),
            replies=case.replies,
            cause=case.cause.name,
        )


def _probes_itself(case: Case, agent: str) -> bool:
    """Return whether an agent's own probes are lost on their way to agents that answer others.

    A process that pauses answers nobody, but it sends nothing that could be lost either.
    """
    peers = {
        flow.responder
        for flow in case.open
        if flow.cut and flow.prober == agent and flow.responder not in (None, agent)
    }
    return sum(case.evidence.well(str(peer)) > 0 for peer in peers) >= LEAST_PEERS


def _loses(flow: BadFlow) -> bool:
    return any(s.lost > 0 for s in flow.symptoms)


def _is_contested(case: Case) -> bool:
    """Return whether it may be a cable that lets others pass than those that are cut off."""
    contested = case.evidence.contested
    return any(cause.name in contested and share >= RIVAL for cause, share in case.shares)


def _best_two(case: Case) -> float:
    """Return the belief that it is the suspect or its best rival."""
    return sum(share for _, share in case.shares[:2])


def _at_port(case: Case, topology: Topology) -> float:
    """Return the belief that it is the suspect or, of an RNIC and its only cable, the other one.

    Whatever crosses the one crosses the other: more losses do not tell them apart, traces may.
    """

    def has_one_cable(name: str) -> bool:
        return topology.kind(name) is ComponentKind.RNIC and len(topology.links_at(name)) == 1

    name = case.cause.name
    near = (*topology.links_at(name), *topology.ends(name))
    joined = {other for other in near if has_one_cable(name) or has_one_cable(other)}
    return case.share + sum(share for cause, share in case.shares if cause.name in joined)


def _may_be_echo(case: Case, min_flows: int, named: float = 0.0) -> bool:
    """Return whether replies that an open fault elsewhere delays explain that a case is late.

    Round trips are late on their way back as well, and which way that is, is mostly not known. So
    a second fault needs 5-tuples that cannot cross the first, either way, or another delay, or more
    late ones than come back through the first: each reply takes its way by a hash of its own.

    Parameters
    ----------
    named
        Log-likelihood ratio of a state that began with it and names it.
    """
    known = case.evidence.known
    if not known or case.cause.name in known:
        return False
    if sum(known.isdisjoint(flow.components) for flow in case.own) >= min_flows:
        return False
    delayed = (flow for flow in case.evidence.bad if not known.isdisjoint(flow.components))
    own_ns, known_ns = rises_ns(case.open), rises_ns(delayed)
    if not (own_ns and known_ns and _are_near(median(own_ns), median(known_ns))):
        return False
    beside = [flow for flow in case.open if known.isdisjoint(flow.components)]
    if not beside:
        return True
    ways = [case.evidence.replies.shares(*flow.key[:2]) for flow in beside]
    returned = [min(1.0, sum(way.get(c, 0.0) for c in known)) for way in ways]
    mean = max(LEAST_SHARE, min(sum(returned) / len(returned), MOST_RETURNED))
    # Of those that cannot come back through it so many are late by chance.
    apart = sum(chance == 0.0 for chance in returned)
    more = max(
        divergence(len(beside), len(beside) + case.good, mean),
        divergence(apart, apart + case.good, LEAST_SHARE) if apart else 0.0,
    )
    return more + named < ECHO_SURE


def _are_near(a_ns: float, b_ns: float) -> bool:
    """Return whether two delays may be the same one: within a factor of two."""
    return a_ns / 2 <= b_ns <= a_ns * 2


def agents_must_live_since(case: Case) -> Sequence[BadFlow]:
    """Return the open 5-tuples from which on an agent must have lived: of a cut, those cut off.

    Some lose packets for longer, such as those to a starved host. That an agent lived since then
    says nothing of the cut.
    """
    if cut_share(case.open) < CUT_SHARE:
        return case.open
    return [flow for flow in case.open if flow.cut]


def _is_sure(case: Case) -> bool:
    """Return whether some component is at fault.

    Of a leak, the pooled test of its losses has ruled chance out; which 5-tuples lost a probe tells
    only where it is.
    """
    return case.doubt <= MAX_DOUBT or _leaks(case)


def _leaks(case: Case) -> bool:
    """Return whether each 5-tuple lost single probes at a component that leaks, and no more."""
    return all(
        flow.lossy and any(s.kind is AnomalyKind.STRAY_LOSS for s in flow.symptoms)
        for flow in case.open
    )


def by_queues(flows: Sequence[BadFlow]) -> bool:
    """Return whether the windows of an alarm (LATENCY) together have the shape that queues make."""
    rises = [
        (s.median_rise_ns, s.shift_ns)
        for flow in flows
        for s in flow.symptoms
        if s.kind is AnomalyKind.LATENCY and s.median_rise_ns is not None and s.shift_ns is not None
    ]
    return sum(middle for middle, _ in rises) < LEVEL_SHARE * sum(upper for _, upper in rises)


def _is_brief(case: Case) -> bool:
    """Return whether only the last answers show it."""
    return all(s.kind is AnomalyKind.BRIEF_LATENCY for f in case.open for s in f.symptoms)


def by_brief_queues(flows: Sequence[BadFlow]) -> bool:
    """Return whether the last answers (BRIEF_LATENCY) together have the shape that queues make.

    Of a dozen 5-tuples with eight answers each a queue has now and then the shape of a shift. That
    was asked when the moment was found, of other answers.
    """
    rises = [
        (s.shift_ns, s.median_rise_ns)
        for flow in flows
        for s in flow.symptoms
        if s.kind is AnomalyKind.BRIEF_LATENCY
        and not s.of_some
        and s.shift_ns is not None
        and s.median_rise_ns is not None
    ]
    return not is_shift(rises)


def _some_matter(shifts: list[int]) -> bool:
    """Return whether a quarter of the rises matter.

    What replays packets, or handles some of them in software, leaves the others as they were: the
    last answers of one 5-tuple have risen, those of another hardly. That it is one fault the state
    says that names it.
    """
    matter = sum(shift >= LEAST_RISE_NS for shift in shifts)
    return not shifts or matter >= MATTER_SHARE * len(shifts)


def _is_one_delay(shifts: list[int]) -> bool:
    """Return whether rises may be one delay that matters."""
    if not shifts:
        return True
    middle = median(shifts)
    if middle < LEAST_RISE_NS:
        return False
    near = sum(_are_near(middle, shift) for shift in shifts)
    return near >= COHERENT_SHARE * len(shifts)

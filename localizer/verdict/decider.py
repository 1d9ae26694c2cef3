"""One decision: from everything known at a grid point to claims and transitions of faults."""

from localizer.config import CoreConfig
from localizer.facts.anomalies import Symptom
from localizer.facts.bad_flows import BadFlows
from localizer.facts.index_cache import IndexCache
from localizer.facts.inputs import Housekeeper, Sources
from localizer.facts.reachability import Reachability
from localizer.inference.causes import Cause, Columns, Reason
from localizer.inference.evidence import Evidence, gather
from localizer.inference.explainer import Explainer
from localizer.inference.hop_rows import HopRows
from localizer.inference.observations import ResolvedFaults
from localizer.verdict.cadence import Cadence
from localizer.verdict.cases import Case, cases, without_parts
from localizer.verdict.catalogue import HOST_GROUPS, LATENCY, LOSS, OVERLAY, PARTIAL
from localizer.verdict.claims import ChainClaims, Claim
from localizer.verdict.incident import Incident
from localizer.verdict.judge import Judge
from localizer.verdict.leaks import Leaks
from localizer.verdict.lifecycle import Lifecycle, Situation
from localizer.verdict.never_whole import beside_faults
from localizer.verdict.onsets import SAMPLING_NS, apart, broken_later, never_well, passed_before
from localizer.verdict.self_claims import self_claims
from localizer.verdict.silences import SilenceClaims
from localizer.verdict.slow_components import SlowComponents
from localizer.verdict.slow_moments import SlowMoments
from localizer.verdict.state_claims import state_claims
from schemas.enums import AnomalyFamily
from schemas.ids import FlowId
from schemas.records import FaultEvent
from schemas.units import SECOND_NS, us_to_ns

# Latency that begins within this time after a fault's resolution belongs to its end.
AFTERMATH_SLACK_NS = SECOND_NS


class Decider:
    """Derives claims and passes them to the life cycle of faults.

    Attributes
    ----------
    silences
        Claims about silent agents.
    """

    def __init__(self, config: CoreConfig, sources: Sources, lifecycle: Lifecycle) -> None:
        self._config = config
        self._sources = sources
        self._lifecycle = lifecycle
        self._judge = Judge(config, sources)
        self._flows = BadFlows(sources, self._apart)
        self._explainers = {family: Explainer() for family in AnomalyFamily}
        self._hops = {family: HopRows(family) for family in AnomalyFamily}
        self._chains = ChainClaims(sources, self._flows)
        self._cadence = Cadence()
        self._echoes: frozenset[FlowId] = frozenset()
        # 5-tuples of which the latest explanation says that only their replies are lost.
        self._replyless: frozenset[FlowId] = frozenset()
        self._index = IndexCache(sources.roster, sources.paths, sources.topology)
        reach = Reachability(self._index, sources.liveness, sources.anomalies)
        self._tidier = Housekeeper(config, sources, self._index, reach)
        self._leaks = Leaks(sources)
        self._slow = SlowComponents(sources)
        self._moments = SlowMoments(sources)
        self.silences = SilenceClaims(config.cluster, sources, reach)

    @property
    def without_way(self) -> frozenset[tuple[str, str]]:
        """Pairs on ping lists that have no way through the overlay, see `ChainClaims`."""
        return self._chains.without_way

    @property
    def idle(self) -> bool:
        """Whether the passing of time changes nothing: no agent, anomaly or fault is known."""
        sources = self._sources
        return (
            not len(sources.liveness)
            and sources.anomalies.empty
            and sources.states.all_well
            and not self._lifecycle.open_faults()
            and not self._lifecycle.resolved_faults()
        )

    def decide(self, now_ns: int, *, silent: bool, forgotten: bool = False) -> list[FaultEvent]:
        """Decide at a grid point.

        Parameters
        ----------
        now_ns
            Event time of the grid point.
        silent
            Follow the evidence but make no transitions: a former process has published this time.
        forgotten
            Nor follow it: it is so long ago that nothing of it is remembered.
        """
        self._tidier.tidy_before_decision(now_ns)
        places = self._index.places()
        self._leaks.observe_time(
            now_ns,
            places,
            self._resolved(),
            [i for i in self._lifecycle.open_faults() if i.group in (LOSS, OVERLAY)],
        )
        faulty = frozenset(
            i.place for i in self._lifecycle.open_faults() if i.group in (LOSS, OVERLAY, LATENCY)
        )
        self._slow.observe_time(now_ns, places, faulty)
        self._moments.observe_time(now_ns, places, faulty)
        if not self._is_due(now_ns) or forgotten:
            return []
        if (
            self._sources.anomalies.empty
            and not self._sources.liveness.silent
            and self._sources.reports.all_well
            and self._sources.states.all_well
            and not self._lifecycle.open_faults()
        ):
            self._index.prepare()
            # What the last storm left behind goes.
            Cause.of.cache_clear()
            Columns.of.cache_clear()
            for family in AnomalyFamily:
                self._hops[family].forget()
                self._explainers[family].forget()
            self.silences.forget()
            claims = []
        else:
            claims = self._claims(now_ns)
        situation = self._situation(claims, now_ns)
        if silent:
            self._lifecycle.observe(claims, situation, now_ns)
            return []
        return self._lifecycle.step(claims, situation, now_ns)

    def _is_due(self, now_ns: int) -> bool:
        """Return whether this grid point is decided, see `localizer.verdict.cadence`."""
        sources, faults = self._sources, self._lifecycle.open_faults()
        return self._cadence.due(
            now_ns,
            (
                sources.anomalies.sudden_version,
                sources.tables.content_version,
                sources.topology.version,
                tuple(sources.liveness.silent),
                sum(fault.group != LATENCY for fault in faults),
            ),
            (
                sources.anomalies.version,
                sources.tables.version,
                sources.states.version,
                len(faults),
            ),
            flows=len(sources.anomalies),
        )

    def _claims(self, now_ns: int) -> list[Claim]:
        self._replyless = frozenset()
        claims = self.silences.find(now_ns)
        if not self._sources.reports.all_well:
            claims += self_claims(self._config.cluster, self._sources, now_ns)
        claims += state_claims(self._sources, now_ns)
        known = [i for i in self._lifecycle.open_faults() if i.group == OVERLAY]
        accused = frozenset(incident.event.component_id for incident in known)
        overlay, broken = self._chains.find(now_ns, accused)
        for incident in known:
            # An entry that was reinstalled leaves anomalies that three rounds must clear first.
            broken |= incident.keys or frozenset()
        claims += overlay
        claims += self._family(AnomalyFamily.LOSS, broken, now_ns)
        claims += self._family(AnomalyFamily.LATENCY, self._aftermath(now_ns), now_ns)
        return claims

    def _family(
        self, family: AnomalyFamily, explained: frozenset[FlowId], now_ns: int
    ) -> list[Claim]:
        leaky = frozenset(
            i.place for i in self._lifecycle.open_faults() if i.event.fault_kind in PARTIAL
        )
        bad = self._flows.unexplained(family, now_ns, explained, leaky)
        resolved = self._resolved()
        if not any(flow.open for flow in bad):
            return []
        new = (
            never_well(bad, self._sources.roster) if self._lifecycle.open_faults() else frozenset()
        )
        if family is AnomalyFamily.LOSS:
            faults = self._old_faults()
            bad = [
                flow if flow.key in new else passed_before(flow, faults)
                for flow in bad
                if flow.open or flow.ended_ns > resolved.until_ns(flow.key, flow.components)
            ]
            blamed = self._blamed()
            sources = self._sources
            bad = beside_faults(bad, blamed, sources.paths, sources.topology)
            bad = apart(bad, blamed)
        for incident in self._lifecycle.open_faults():
            if (incident.group == LATENCY) == (family is AnomalyFamily.LATENCY):
                bad = broken_later(bad, incident, now_ns, new)
        oldest_ns = now_ns - min(flow.seen_ns for flow in bad if flow.open)
        owned = self._owned(family)
        evidence = gather(
            self._sources,
            self._index.places(),
            family,
            bad,
            now_ns=now_ns,
            explained=explained,
            resolved=resolved,
            known_ns=self._known(family),
            owned=owned,
            decided=self._owned(family, decided=True),
            settled=frozenset(
                i.place
                for i in self._lifecycle.open_faults()
                if i.event.decided and now_ns - i.opened_ns > self._config.refine_ns
            ),
            leaking=self._leaks.components if family is AnomalyFamily.LOSS else frozenset(),
            allow_global=family is AnomalyFamily.LATENCY or oldest_ns < self._config.everything_ns,
            hops=self._hops[family],
            sample=self._flows.sample(family),
            left_out=self._flows.left_out(family, now_ns, explained),
        )
        if evidence is None:
            return []
        found = cases(evidence, self._explainers[family].explain(evidence.problem))
        if family is AnomalyFamily.LOSS:
            self._replyless = frozenset(
                flow.key for case in found if case.cause.reason is Reason.REPLY for flow in case.bad
            )
            self._note_echoes(evidence, found)
        else:
            found = without_parts(found)
        claims = [
            self._judge.claim(
                case,
                now_ns,
                owned,
                others=frozenset(other.cause.name for other in found if other is not case),
                returned=lambda component: self._lifecycle.returned(component, now_ns),
            )
            for case in found
        ]
        return [claim for claim in claims if claim is not None]

    def _resolved(self) -> ResolvedFaults:
        """Return for which losses faults that are over account."""
        return ResolvedFaults(
            (
                (incident.over_ns, incident.components)
                for incident in self._lifecycle.resolved_faults()
                if incident.group in (LOSS, OVERLAY)
            ),
            self._sources.paths,
            self._index.replies(),
        )

    def _old_faults(self) -> list[Incident]:
        """Return the decided open faults that lose packets."""
        faults = self._lifecycle.open_faults()
        return [i for i in faults if i.group == LOSS and i.event.decided]

    def _blamed(self) -> frozenset[str]:
        """Return the components of open faults that lose packets: of undecided ones, all."""
        faults = self._lifecycle.open_faults()
        return frozenset[str]().union(*(i.components for i in faults if i.group == LOSS))

    def _note_echoes(self, evidence: Evidence, found: list[Case]) -> None:
        """Remember the 5-tuples that only lose replies because of open faults.

        While a fault clears, the evidence for this fades: what it hit itself may clear first.
        """
        bad = frozenset(flow.key for flow in evidence.bad).union(evidence.unseen.keys)
        self._echoes = self._echoes & bad if evidence.known else frozenset()
        if evidence.known.isdisjoint(case.cause.name for case in found):
            return
        others = [
            case
            for case in found
            if case.cause.reason is Reason.COMPONENT and case.cause.name not in evidence.known
        ]
        told = frozenset(flow.key for case in others for flow in case.bad)
        self._echoes |= evidence.echoing - told | self._replyless

    def _owned(self, family: AnomalyFamily, *, decided: bool = False) -> frozenset[FlowId]:
        """Return the 5-tuples of open faults of a family; few remain bad while a fault clears.

        `decided`: of those that are decided.
        """
        group = LOSS if family is AnomalyFamily.LOSS else LATENCY
        faults = [i for i in self._lifecycle.open_faults() if i.group == group]
        owned = frozenset[FlowId]().union(
            *(i.keys or () for i in faults if i.event.decided or not decided)
        )
        return owned | self._echoes if family is AnomalyFamily.LOSS else owned

    def _apart(self, family: AnomalyFamily) -> tuple[frozenset[FlowId], ...]:
        """Return the 5-tuples of decided open faults, and the others that began with the largest.

        Of losses also those of the overlay's faults.
        """
        groups = (LATENCY,) if family is AnomalyFamily.LATENCY else (LOSS, OVERLAY)
        faults = [i for i in self._lifecycle.open_faults() if i.group in groups and i.event.decided]
        if not faults:
            return ()
        accounted = self._owned(family, decided=True).union(*(i.keys or () for i in faults))
        until_ns = max(faults, key=lambda i: len(i.keys or ())).began_ns + SAMPLING_NS
        anomalies = self._sources.anomalies
        began_with = frozenset(
            key
            for key in anomalies.flows_of(family) - accounted
            if any(s.onset_ns <= until_ns for s in anomalies.symptoms(family, key))
        )
        return accounted, began_with

    def _known(self, family: AnomalyFamily) -> dict[str, int]:
        """Return when decided open faults of a family began (ns), by component."""
        group = LOSS if family is AnomalyFamily.LOSS else LATENCY
        return {
            i.place: us_to_ns(i.event.onset_at)
            for i in self._lifecycle.open_faults()
            if i.group == group and i.event.decided
        }

    def _aftermath(self, now_ns: int) -> frozenset[FlowId]:
        """Return 5-tuples whose latency is a consequence of a fault that loses or lost packets."""
        open_now: set[str] = set()
        until_ns: dict[str, int] = {}
        for incident in self._lifecycle.open_faults():
            if incident.group in (LOSS, OVERLAY):
                open_now |= incident.components
        for incident in self._lifecycle.resolved_faults():
            if incident.group in (LOSS, OVERLAY):
                for component in incident.components:
                    until_ns[component] = max(until_ns.get(component, 0), incident.over_ns)
        if not open_now and not until_ns:
            return frozenset()
        found = set()
        for key, symptoms in self._sources.anomalies.by_family(AnomalyFamily.LATENCY):
            crossed = self._sources.paths.components(key)
            ended_ns = max((until_ns[c] for c in crossed if c in until_ns), default=0)
            after = now_ns - ended_ns < self._config.aftermath_ns and all(
                s.onset_ns <= ended_ns + AFTERMATH_SLACK_NS for s in symptoms
            )
            if after or not open_now.isdisjoint(crossed):
                found.add(key)
        return frozenset(found)

    def _situation(self, claims: list[Claim], now_ns: int) -> Situation:
        # What never had a way keeps no fault open.
        loss = self._bad_keys(AnomalyFamily.LOSS, now_ns)
        if self.without_way:
            loss = frozenset(key for key in loss if key[:2] not in self.without_way)
        latency = self._bad_keys(AnomalyFamily.LATENCY, now_ns) - loss - self._aftermath(now_ns)
        covered = frozenset[FlowId]().union(*(claim.keys for claim in claims))
        return Situation(
            bad_loss=loss,
            bad_latency=latency,
            crossing=lambda components, group: self._crossing(
                components, latency if group == LATENCY else loss, group
            ),
            unexplained=len((loss | latency) - covered),
            echoes=self._echoes,
            replyless=self._replyless,
            standing=lambda incident: self._judge.standing(incident, now_ns),
        )

    def _crossing(
        self, components: frozenset[str], keys: frozenset[FlowId], group: str
    ) -> frozenset[FlowId]:
        if group in HOST_GROUPS:
            return frozenset()
        crossed = self._sources.paths.components
        return frozenset(k for k in keys if not components.isdisjoint(crossed(k)))

    def _bad_keys(self, family: AnomalyFamily, now_ns: int) -> frozenset[FlowId]:
        agent_of, troubled = self._sources.roster.agent_of, self._sources.liveness.excusable()
        if not troubled:
            return frozenset(self._sources.anomalies.flows_of(family))
        return frozenset(
            key
            for key, symptoms in self._sources.anomalies.by_family(family)
            if (agent := agent_of(key[1])) not in troubled
            or not self._is_agents(agent, symptoms, now_ns)
        )

    def _is_agents(self, agent: str | None, symptoms: tuple[Symptom, ...], now_ns: int) -> bool:
        """Return whether all symptoms are attributed to the target's agent."""
        excused = self._sources.liveness.excused
        return agent is not None and all(
            excused(agent, s.onset_ns, now_ns, prober=s.agent_id) for s in symptoms
        )

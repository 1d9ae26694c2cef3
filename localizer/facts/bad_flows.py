"""The bad 5-tuples: those whose anomalies the network may be responsible for.

In: open anomalies, paths, traces, liveness. Out: a list of `BadFlow`, each with the components that
may be at fault. Results are cached: only what changed since the last decision is computed again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, replace
from typing import Final

from localizer.facts.anomalies import LOSSY, Symptom
from localizer.facts.inputs import Sources
from localizer.facts.sampling import Sample, is_storm, sample_of
from localizer.network.traces import UNTRACED, TraceFindings
from schemas.enums import AnomalyFamily, AnomalyKind, ComponentKind
from schemas.ids import FlowId
from schemas.units import SECOND_NS

# Loss this long before the onset of a cut is partial loss, not the beginning of the cut.
EARLIER_NS: Final = 2 * SECOND_NS
# Open anomalies are repeated every 5 s. One that is not has lost its prober, or the prober its
# clock: it no longer counts.
STALE_NS: Final = 8 * SECOND_NS
# A trace that ended this soon after the first lost probe may have begun before it.
TRACE_SLACK_NS: Final = SECOND_NS // 2


# Not frozen, since that makes creation half as slow again, and a storm has a hundred thousand of
# them; never modified.
@dataclass(slots=True, kw_only=True, eq=False)
class BadFlow:
    """A 5-tuple with open anomalies.

    Attributes
    ----------
    symptoms
        Its anomalies that count.
    components
        What it crosses, less what lost probes have passed.
    open
        Whether it is bad now; False for a brief cut that is over.
    stands_for
        Of how many bad 5-tuples it is the one that is looked at.
    replyless
        It is cut off, but in its traces every hop except the target answers.
    traced
        Whether it was traced since it is cut off.
    passed_before
        Components of its path with an older fault that had let it pass.
    doubted
        Components of its path that let others pass, and with which probability it was lost there.
    cut
        No probe is answered.
    lossy
        Some probes are lost, others are answered.
    onset_ns
        When its first evidence was sent.
    seen_ns
        When it was detected.
    ended_ns
        When it was last reported as bad, or as over.
    """

    key: FlowId
    symptoms: tuple[Symptom, ...]
    components: tuple[str, ...]
    prober: str
    responder: str | None
    open: bool
    stands_for: int = 1
    replyless: bool = False
    traced: bool = False
    passed_before: frozenset[str] = frozenset()
    doubted: tuple[tuple[str, float], ...] = ()
    # Computed once, since they are read many times for each of a hundred thousand.
    cut: bool = field(init=False)
    lossy: bool = field(init=False)
    onset_ns: int = field(init=False)
    seen_ns: int = field(init=False)
    ended_ns: int = field(init=False)

    def __post_init__(self) -> None:
        """Derive the attributes that depend on all symptoms."""
        symptoms = self.symptoms
        if len(symptoms) == 1:
            # The usual case in a storm.
            only = symptoms[0]
            self.cut = only.kind is AnomalyKind.CONNECTIVITY
            self.lossy = only.kind in LOSSY
            self.onset_ns, self.seen_ns = only.onset_ns, only.seen_ns
            self.ended_ns = only.last_ns
            return
        kinds = [s.kind for s in symptoms]
        self.cut = AnomalyKind.CONNECTIVITY in kinds
        self.lossy = not self.cut and not LOSSY.isdisjoint(kinds)
        self.onset_ns = min([s.onset_ns for s in symptoms])
        self.seen_ns = min([s.seen_ns for s in symptoms])
        self.ended_ns = max([s.last_ns for s in symptoms])

    @classmethod
    def left_out(
        cls, key: FlowId, symptoms: tuple[Symptom, ...], responder: str | None
    ) -> "BadFlow":
        """Return one that is bad now; what it crosses is not looked up."""
        return cls(
            key=key,
            symptoms=symptoms,
            components=(),
            prober=symptoms[0].agent_id,
            responder=responder,
            open=True,
        )

    def without_passed(
        self, components: tuple[str, ...], *, replyless: bool, traced: bool
    ) -> "BadFlow":
        """Return a copy without passed components; `replace` would derive everything again."""
        cached = object.__new__(BadFlow)
        for name in FIELDS:
            setattr(cached, name, getattr(self, name))
        cached.components, cached.replyless, cached.traced = components, replyless, traced
        return cached


FIELDS: Final = tuple(f.name for f in fields(BadFlow))


CachedFlow = tuple[tuple[Symptom, ...], tuple[str, ...], str | None, BadFlow]


class BadFlows:
    """Finds the bad 5-tuples of a family; of a storm, those that are looked at.

    Parameters
    ----------
    apart
        Says which 5-tuples of a family are sampled by themselves, see `sample_of`.
    """

    def __init__(
        self, sources: Sources, apart: Callable[[AnomalyFamily], Sequence[AbstractSet[FlowId]]]
    ) -> None:
        self._sources = sources
        self._apart = apart
        self._samples: dict[AnomalyFamily, Sample] = {}
        # Results of the last call by family, and what each 5-tuple's result was derived from.
        self._results: dict[AnomalyFamily, tuple[int, list[BadFlow]]] = {}
        self._cached: dict[AnomalyFamily, dict[FlowId, CachedFlow]] = {
            family: {} for family in AnomalyFamily
        }
        self._cleared: dict[FlowId, tuple[BadFlow, TraceFindings, BadFlow]] = {}

    def all_bad(
        self, family: AnomalyFamily, now_ns: int, explained: frozenset[FlowId] = frozenset()
    ) -> list[BadFlow]:
        """Return the bad 5-tuples with everything that they cross, sorted by key.

        Excluded: anomalies that nobody repeats, those that a dead or just returned agent explains,
        latency on 5-tuples with loss, and latency that the prober itself causes.

        Parameters
        ----------
        explained
            5-tuples that something else accounts for: if a sample is taken, then of the others.
        """
        known = self._results.get(family)
        if known is None or known[0] != now_ns:
            found = list(self._open(family, now_ns, explained))
            if family is AnomalyFamily.LOSS:
                found += self._brief(now_ns)
            known = self._results[family] = now_ns, sorted(found, key=lambda flow: flow.key)
        return known[1]

    def sample(self, family: AnomalyFamily) -> Sample:
        """Return which 5-tuples with open anomalies the last look at a family was at."""
        return self._samples[family]

    def left_out(
        self, family: AnomalyFamily, now_ns: int, explained: AbstractSet[FlowId] = frozenset()
    ) -> Iterator[tuple[FlowId, tuple[Symptom, ...]]]:
        """Yield the 5-tuples that the sample leaves out, each with its anomalies that count.

        It has none where something else accounts for them, see `all_bad`, or it is in `explained`.
        """
        troubled, kept = self._sources.liveness.excusable(), self._kept
        for key in self._samples[family].left_out:
            if explained and key in explained:
                yield key, ()
            else:
                yield key, kept(family, key, now_ns, troubled)

    def unexplained(
        self,
        family: AnomalyFamily,
        now_ns: int,
        explained: frozenset[FlowId],
        leaky: frozenset[str] = frozenset(),
    ) -> list[BadFlow]:
        """Return the bad 5-tuples not in `explained`, without components that lost probes passed.

        Parameters
        ----------
        explained
            5-tuples that something else accounts for.
        leaky
            Components that are known to lose a share of the packets.
        """
        found = self.all_bad(family, now_ns, explained)
        if explained:
            found = [flow for flow in found if flow.key not in explained]
        if family is not AnomalyFamily.LOSS:
            return found
        began_ns = _loss_began_ns(flow for flow in found if flow.lossy)
        before, self._cleared = self._cleared, {}
        # What began so long ago and lets some pass still is no beginning of a cut.
        leaky |= began_ns.keys()
        self._sources.paths.look_up_findings(
            [(flow.key, flow.onset_ns + TRACE_SLACK_NS) for flow in found if flow.cut and flow.open]
        )
        cleared = [self._exonerated(flow, before, began_ns, leaky) for flow in found]
        if self._ports(_in_common(found)) and not _in_common(cleared):
            # One RNIC or its cable is on all their ways, and some traces passed it: it loses a
            # share, which cuts 5-tuples off by chance. What passed stands in the traces as well.
            # A switch on all their ways may lead to two faults.
            return [
                one
                if one is flow
                else one.without_passed(flow.components, replyless=one.replyless, traced=one.traced)
                for one, flow in zip(cleared, found, strict=True)
            ]
        return cleared

    def _open(
        self, family: AnomalyFamily, now_ns: int, explained: frozenset[FlowId]
    ) -> Iterable[BadFlow]:
        sources, troubled = self._sources, self._sources.liveness.excusable()
        agent_of, components_of = sources.roster.agent_of, sources.paths.components
        before, cached = self._cached[family], dict[FlowId, CachedFlow]()
        self._cached[family] = cached
        keys, apart = sources.anomalies.flows_of(family), list[AbstractSet[FlowId]]()
        if is_storm(keys):
            apart += self._elsewhere(family, keys, now_ns, explained), *self._apart(family)
        sample = self._samples[family] = sample_of(keys, apart)
        sources.paths.look_up(key for _, key in sample if key not in before)
        for stands_for, key in sample:
            responder = agent_of(key[1])
            kept = self._kept(family, key, now_ns, troubled)
            if not kept:
                continue
            onset_ns = kept[0].onset_ns if len(kept) == 1 else min([s.onset_ns for s in kept])
            crossed = components_of(key, onset_ns)
            known = before.get(key)
            if (
                known is None
                or known[1] is not crossed
                or known[2] != responder
                or known[0] != kept
                or known[3].stands_for != stands_for
            ):
                flow = BadFlow(
                    key=key,
                    symptoms=kept,
                    components=crossed,
                    prober=kept[0].agent_id,
                    responder=responder,
                    open=True,
                    stands_for=stands_for,
                )
                known = kept, crossed, responder, flow
            cached[key] = known
            yield known[3]

    def _elsewhere(
        self,
        family: AnomalyFamily,
        keys: Iterable[FlowId],
        now_ns: int,
        explained: frozenset[FlowId],
    ) -> frozenset[FlowId]:
        """Return the 5-tuples that something else accounts for, such as dead agents."""
        troubled = self._sources.liveness.excusable()
        if family is AnomalyFamily.LOSS and not troubled:
            return explained
        return explained.union(key for key in keys if not self._kept(family, key, now_ns, troubled))

    def _brief(self, now_ns: int) -> Iterable[BadFlow]:
        sources, troubled = self._sources, self._sources.liveness.excusable()
        brief, is_open = sources.anomalies.brief_cuts(), sources.anomalies.is_open
        for stands_for, key in sample_of(brief.keys()):
            symptom = brief[key]
            if not is_open(key) and self._counts(
                AnomalyFamily.LOSS, key, symptom, now_ns, troubled
            ):
                yield BadFlow(
                    key=key,
                    symptoms=(symptom,),
                    components=sources.paths.components(key, symptom.onset_ns),
                    prober=symptom.agent_id,
                    responder=sources.roster.agent_of(key[1]),
                    open=False,
                    stands_for=stands_for,
                )

    def _ports(self, components: Iterable[str]) -> list[str]:
        """Return which of some components are RNICs or cables of RNICs."""
        topology = self._sources.topology
        return [
            name
            for name in components
            if any(topology.kind(c) is ComponentKind.RNIC for c in (name, *topology.ends(name)))
        ]

    def _exonerated(
        self,
        flow: BadFlow,
        before: dict[FlowId, tuple[BadFlow, TraceFindings, BadFlow]],
        began_ns: dict[str, int],
        leaky: frozenset[str],
    ) -> BadFlow:
        """Remove from a cut-off 5-tuple the components that its lost probes have passed.

        The replies may be lost on another way. Nothing is removed if a passed component loses a
        share of the packets: it lets some pass, and cuts 5-tuples off by chance. (At the beginning
        of a cut, some 5-tuples look lossy for a moment, too.)
        """
        if not flow.cut or not flow.open:
            return flow
        account = self._sources.paths.findings_since(flow.key, flow.onset_ns + TRACE_SLACK_NS)
        if account is UNTRACED:
            return flow
        early_ns = flow.onset_ns - EARLIER_NS
        if not account.passed.isdisjoint(leaky) or (
            began_ns and any(began_ns.get(c, early_ns) < early_ns for c in account.passed)
        ):
            return replace(flow, traced=account.traced)
        known = before.get(flow.key)
        if known is None or known[0] is not flow or known[1] is not account:
            passed = account.passed
            cleared = flow.without_passed(
                tuple([c for c in flow.components if c not in passed]),
                replyless=account.only_target_silent,
                traced=account.traced,
            )
            known = flow, account, cleared
        self._cleared[flow.key] = known
        return known[2]

    def _kept(
        self, family: AnomalyFamily, key: FlowId, now_ns: int, troubled: set[str]
    ) -> tuple[Symptom, ...]:
        """Return the anomalies of a 5-tuple that count."""
        kept = symptoms = self._sources.anomalies.symptoms(family, key)
        for symptom in symptoms:
            if now_ns - symptom.last_ns > STALE_NS or not self._counts(
                family, key, symptom, now_ns, troubled
            ):
                kept = tuple([s for s in kept if s is not symptom])
        return kept

    def _counts(
        self, family: AnomalyFamily, key: FlowId, symptom: Symptom, now_ns: int, troubled: set[str]
    ) -> bool:
        if family is AnomalyFamily.LOSS and not troubled:
            return True
        sources = self._sources
        for agent in (symptom.agent_id, sources.roster.agent_of(key[1])) if troubled else ():
            # A brief cut can no longer be cleared: while it is remembered, it is attributed to the
            # agent.
            long = symptom.kind in LOSSY or symptom.over_ns is not None
            if agent in troubled and sources.liveness.excused(
                str(agent), symptom.onset_ns, now_ns, prober=symptom.agent_id, loss=long
            ):
                return False
        if family is AnomalyFamily.LOSS:
            return True
        if key in sources.anomalies.flows_of(AnomalyFamily.LOSS):
            return False
        return not symptom.is_probers


def _in_common(flows: Iterable[BadFlow]) -> set[str]:
    """Return the components that are on the ways of all 5-tuples that are cut off."""
    found: set[str] | None = None
    for flow in flows:
        if flow.cut and flow.open:
            found = set(flow.components) if found is None else found.intersection(flow.components)
            if not found:
                break
    return found or set()


def _loss_began_ns(lossy: Iterable[BadFlow]) -> dict[str, int]:
    """Return by component when the first 5-tuple through it began to lose a share of its probes."""
    found: dict[str, int] = {}
    for flow in lossy:
        for component in flow.components:
            found[component] = min(flow.onset_ns, found.get(component, flow.onset_ns))
    return found

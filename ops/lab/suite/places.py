"""The equivalent places of a lab: the expected verdict of a fault is the same at each. Pure.

A suite that always breaks the same cable tests that cable only. A fault that comes back at the
same place within a minute is treated as the same fault, which is resolved later each time.
Therefore each case moves on to another equivalent place.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product

from arena.world.topology import link_id
from ops.lab.shape import EndpointSpec, LabShape
from ops.lab.suite.cases import Case

Names = Mapping[str, str]
Move = Callable[[int], int]


def places(shape: LabShape) -> list[Names]:
    """Return renamings of all components that leave the plan as it is, the first one changes none.

    Pods, the hosts of a pod, rails and spines are exchanged; two neighbours in the list
    differ in their rails. What would change the plan is left out.
    """
    found = []
    choices = product((False, True), repeat=4)
    for hosts, pods, spines, rails in choices:
        names = _renamed(
            shape,
            _then(_neighbour(on=hosts), _turned(shape.hosts, on=pods)),
            _turned(shape.rails, on=rails),
            _turned(shape.spines, on=spines),
        )
        if names is not None and names not in found:
            found.append(names)
    return found


def placed(case: Case, names: Names) -> Case:
    """Return the case at another place; what has none, the job, stays."""
    return replace(
        case,
        target=names.get(case.target, case.target),
        params={k: names.get(v, v) if isinstance(v, str) else v for k, v in case.params.items()},
        component_ids=tuple(names.get(c, c) for c in case.component_ids),
    )


def _renamed(shape: LabShape, host: Move, rail: Move, spine: Move) -> Names | None:
    """Return names by names; None where the plan would be another one."""
    ends = {(e.host, e.rail): e for e in shape.endpoints}
    names: dict[str, str] = {}
    for (h, r), e in ends.items():
        other = ends.get((host(h), rail(r)))
        if other is None:
            return None
        for old, new in zip(_of(e, shape), _of(other, shape), strict=True):
            if names.setdefault(old, new) != new:
                return None
    spines = shape.spine_ids()
    names |= {old: spines[spine(number)] for number, old in enumerate(spines)}
    links = {link.link_id for link in shape.links}
    for link in shape.links:
        names[link.link_id] = link_id(names[link.a], names[link.b])
    return names if set(names.values()) == names.keys() and links <= names.keys() else None


def _of(e: EndpointSpec, shape: LabShape) -> Iterator[str]:
    yield from (e.endpoint_id, e.container_id, e.agent_id, e.host_id, e.vswitch_id, e.rnic_id)
    yield shape.leaf_of(e.host, e.rail)


def _neighbour(*, on: bool) -> Move:
    return lambda n: n ^ 1 if on else n


def _turned(count: int, *, on: bool) -> Move:
    return lambda n: (n + count // 2) % count if on else n


def _then(first: Move, second: Move) -> Move:
    return lambda n: second(first(n))

"""Inference: what explains the bad observations and is not contradicted by good ones."""

import numpy as np
import pytest

from localizer.inference.search import Explanation, Problem, explain
from localizer.inference.tables import Block
from tests.unit.localizer import naive

Row = tuple[bool, str]


def block(rows: list[Row], names: list[str], lag: float = 1.0) -> Block:
    """Return observations of (bad, columns crossed)."""
    places = [(r, names.index(c)) for r, (_, text) in enumerate(rows) for c in text.split()]
    return Block(
        bad=np.array([bad for bad, _ in rows], dtype=np.bool_),
        weight=np.ones(len(rows)),
        lag=np.full(len(rows), lag),
        rows=np.array([r for r, _ in places], dtype=np.int64),
        columns=np.array([c for _, c in places], dtype=np.int64),
    )


def problem(
    flows: list[Row],
    hops: list[Row] | None = None,
    *,
    lag: float = 1.0,
    prior: dict[str, float] | None = None,
) -> Problem:
    """Return a problem; columns are named by the rows, prior -7 unless given."""
    names = sorted({c for _, text in (*flows, *(hops or [])) for c in text.split()})
    return Problem(
        names=tuple(names),
        log_prior=np.array([(prior or {}).get(n, -7.0) for n in names]),
        blamable=np.ones(len(names), dtype=np.bool_),
        flows=block(flows, names, lag),
        hops=block(hops or [], names),
        chance=((0.002, 0.0), (0.1, -5.0)),
        hop_chance=0.02,
    )


def blamed(made: Problem, found: Explanation) -> set[str]:
    """Return the names of the suspects."""
    return {made.names[s.column] for s in found.suspects}


def share(made: Problem, found: Explanation, name: str) -> float:
    """Return the belief in a column among the first suspect's rivals."""
    return dict(found.suspects[0].shares).get(made.names.index(name), 0.0)


def test_good_paths_clear_what_they_cross() -> None:
    """Links A and B share all bad paths; good ones over B leave A."""
    made = problem([(True, "A B")] * 6 + [(False, "B")] * 6)
    found = explain(made)
    assert blamed(made, found) == {"A"}
    assert share(made, found, "A") > 0.99


def test_what_nothing_tells_apart_is_a_tie() -> None:
    """Two links with the same paths and priors share the belief evenly."""
    made = problem([(True, "A B")] * 6 + [(False, "C")] * 6)
    found = explain(made)
    assert share(made, found, "A") == pytest.approx(share(made, found, "B"))
    assert share(made, found, "A") == pytest.approx(0.5, abs=0.01)


def test_single_hops_of_traces_break_the_tie() -> None:
    """A hop behind A that is silent, and one behind B that answers, decide for A."""
    made = problem(
        [(True, "A B")] * 6,
        [(True, "A")] * 2 + [(True, "A B")] * 2 + [(False, "B")] * 2,
    )
    found = explain(made)
    assert blamed(made, found) == {"A"}
    assert share(made, found, "A") > 0.9


def test_a_switch_explains_all_its_links_better_than_they_do() -> None:
    """Four dead links of one switch are one dead switch."""
    made = problem([(True, f"L{n} S") for n in range(4) for _ in range(3)], prior={"S": -7.7})
    assert blamed(made, explain(made)) == {"S"}


def test_one_dead_link_does_not_blame_the_switch() -> None:
    """The switch's other links are well."""
    rows = [(n == 0, f"L{n} S") for n in range(4) for _ in range(3)]
    made = problem(rows)
    assert blamed(made, explain(made)) == {"L0"}


def test_two_faults_are_two_suspects() -> None:
    """Disjoint bad paths get a fault each."""
    made = problem([(True, "A X")] * 5 + [(True, "B Y")] * 5 + [(False, "X Y")] * 9)
    assert blamed(made, explain(made)) == {"A", "B"}


def test_a_partial_fault_leaves_some_paths_good() -> None:
    """Half of the 5-tuples over A are bad, nothing else: A, at a middling severity."""
    made = problem([(True, "A B")] * 8 + [(False, "A B")] * 8 + [(False, "B C")] * 40)
    found = explain(made)
    assert blamed(made, found) == {"A"}
    assert found.suspects[0].flow_severity in (0.25, 0.5, 0.8)


def test_a_single_bad_path_is_chance() -> None:
    """One bad path among many good ones on the same components blames nobody."""
    made = problem([(True, "A B")] + [(False, "A B")] * 20)
    assert explain(made).suspects == ()


def test_noise_everywhere_is_noise() -> None:
    """A tenth of everything is bad: a higher chance rate explains it, and no component."""
    rows = [(n % 10 == 0, f"L{n % 8} M{n % 7}") for n in range(300)]
    found = explain(problem(rows))
    assert found.suspects == ()
    assert found.chance == 0.1


def test_early_good_paths_hardly_count() -> None:
    """While faults have hardly shown themselves, 20 good paths do not clear A."""
    rows = [(True, "A")] * 4 + [(False, "A")] * 20
    late, early = problem(rows, lag=1.0), problem(rows, lag=0.05)
    assert blamed(early, explain(early)) == {"A"}
    assert blamed(late, explain(late)) == set()


def test_doubt_is_the_share_of_no_fault_at_all() -> None:
    """More bad paths leave less doubt."""
    few = explain(problem([(True, "A")] * 3)).suspects[0].doubt
    many = explain(problem([(True, "A")] * 6)).suspects[0].doubt
    assert many < few < 0.1


def test_an_empty_grid_is_refused() -> None:
    """Without a chance rate there is nothing to compare."""
    made = problem([(True, "A")])
    empty = Problem(
        names=made.names, log_prior=made.log_prior, blamable=made.blamable,
        flows=made.flows, hops=made.hops, chance=(), hop_chance=0.02,
    )  # fmt: skip
    with pytest.raises(ValueError, match="chance"):
        explain(empty)


def test_the_score_is_that_of_the_naive_twin() -> None:
    """The vectorised sums and the plain loops agree on the explanation's score."""
    made = problem(
        [(True, "A B")] * 3 + [(False, "B C")] * 4 + [(True, "C")],
        [(True, "A"), (False, "B"), (False, "C")],
        lag=0.7,
    )
    found = explain(made)
    faults = {s.column: (s.flow_severity, s.hop_severity) for s in found.suspects}
    weight = dict(made.chance)[found.chance]
    assert found.score == pytest.approx(naive.score(made, faults, found.chance, weight))

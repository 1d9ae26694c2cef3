"""Constants of pyverbs, whichever layout it has."""

import enum
from types import ModuleType

from probers.transports.rdma.library import members


def test_constants_in_enumerations_are_found_by_their_own_names() -> None:
    """As in PyPI's pyverbs 59; what stands in the module itself is kept."""

    class QpType(enum.IntFlag):
        IBV_QPT_UD = 4

    module = ModuleType("libibverbs_enums")
    module.__dict__.update({"ibv_qp_type": QpType, "IBV_QP_STATE": 1})
    found = members(module)
    assert found.IBV_QPT_UD == 4
    assert found.IBV_QP_STATE == 1

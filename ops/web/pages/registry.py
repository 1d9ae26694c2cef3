"""All pages, by name: a further one is a module here, a line below, and its view in the page."""

from typing import Final

from ops.web.pages.agents import AGENTS
from ops.web.pages.counters import COUNTERS
from ops.web.pages.incident import INCIDENT
from ops.web.pages.job import JOB
from ops.web.pages.matrix import MATRIX
from ops.web.pages.now import NOW
from ops.web.pages.page import Page
from ops.web.pages.pair import PAIR
from ops.web.pages.ranks import RANKS
from ops.web.pages.silences import SILENCES
from ops.web.pages.topology import TOPOLOGY

PAGES: Final[dict[str, Page]] = {
    page.name: page
    for page in (NOW, INCIDENT, MATRIX, PAIR, TOPOLOGY, JOB, COUNTERS, RANKS, AGENTS, SILENCES)
}

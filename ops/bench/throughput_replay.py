"""placeholder"""
from ops.bench.report import Figure
def replay(runs, say):
    return []

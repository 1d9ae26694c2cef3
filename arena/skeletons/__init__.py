"""How well traffic skeletons are inferred: suites, scores, baselines."""

"""From explanations to fault verdicts: kinds, claims, and the life cycle of an incident."""

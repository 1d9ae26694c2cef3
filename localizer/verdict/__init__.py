"""From explanations to verdicts: kinds of fault, claims, and the life cycle of an incident."""

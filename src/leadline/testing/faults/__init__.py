"""Models with known faults, on which a diagnosis is scored."""

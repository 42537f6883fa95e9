"""By how much a prediction may be off."""

__all__ = ["UNCERTAINTY"]

UNCERTAINTY = 0.3
"""By this share time and memory may be off; `benchmarks/bench_cost.py` shows by how much they were."""

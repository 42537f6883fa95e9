"""Attention matrices: their norms, their bounds, what keeps them. One file per claim."""

"""Rank collapse: how fast tokens become equal, and what keeps them apart. One file per claim."""

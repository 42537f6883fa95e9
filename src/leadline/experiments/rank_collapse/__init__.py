"""Rank collapse with and without skip connections and MLPs."""

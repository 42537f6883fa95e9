"""The map of a sweep: what trains, and how deep."""

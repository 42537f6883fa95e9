"""A run in several processes: who reads what, and how it comes together."""

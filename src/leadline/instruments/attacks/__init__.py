"""The search for inputs and weights that break a bound."""

ATTACKS, OPTIMISED = 5000, 200
"""How many random and how many optimised attacks every bound meets unless others are asked for."""

"""The search for inputs and weights that break a bound."""

"""How to compute it right: fast reductions, each with a slow reference beside it."""

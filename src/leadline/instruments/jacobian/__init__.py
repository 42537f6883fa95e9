"""Jacobians of blocks and stretches, and Lyapunov exponents, matrix-free."""

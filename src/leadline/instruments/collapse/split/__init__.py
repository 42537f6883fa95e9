"""The stream as mean token and residual, each carried with its own exponent."""

"""What an experiment returns, how it is shown and drawn, and the exponents over depth in it."""

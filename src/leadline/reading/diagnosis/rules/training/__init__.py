"""Rules about training: what is random, what cannot learn."""

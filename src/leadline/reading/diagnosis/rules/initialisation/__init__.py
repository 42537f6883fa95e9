"""Rules about how weights were drawn."""

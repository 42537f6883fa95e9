"""Training with layers left out, and models that lose layers afterwards."""

"""What experiments are done on: models by name, and drawn sentences."""

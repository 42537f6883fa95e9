"""What is wrong with a model, read from its record."""

"""Rules about number types."""

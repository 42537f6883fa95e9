"""Rules that hold a model against what was meant: a declared intention, its family, a reference."""

"""Kinds of faults that only the fresh rounds have, in files by what is wrong."""

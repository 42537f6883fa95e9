"""Bounds and laws beside what was measured."""

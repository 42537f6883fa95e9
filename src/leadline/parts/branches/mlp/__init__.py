"""Multilayer perceptrons: one file per kind."""

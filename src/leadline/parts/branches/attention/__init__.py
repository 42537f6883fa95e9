"""Attention: one file per kind."""

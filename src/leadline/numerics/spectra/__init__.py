"""Largest singular values with certified intervals."""

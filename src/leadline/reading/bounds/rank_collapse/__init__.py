"""Theorems on rank collapse beside the residuals of a record."""

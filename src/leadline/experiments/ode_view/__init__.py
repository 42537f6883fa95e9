"""Residual networks as steps of a differential equation."""

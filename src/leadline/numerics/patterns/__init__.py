"""Attention patterns, and what is summed over them while they stream by."""

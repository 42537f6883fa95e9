"""Passes with changed, exchanged and repeated tokens: what moves, where, and what must not."""

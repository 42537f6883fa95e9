"""Remedies as data: applied to a copy of the model, which is then visited again."""

"""Models whose writes discovery cannot see: one file each, registered by HF model type.

A family is a function `model -> list[Stack] | None`. It states where the writes are; whether
that is true is for the balance to say, as for any other anatomy.
"""

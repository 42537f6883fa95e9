"""Exponents over depth at initialisation, beside the published laws."""

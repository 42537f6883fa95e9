"""Linear maps that are known by their products alone."""

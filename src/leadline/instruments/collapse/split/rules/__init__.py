"""How a Split does each function of torch without cancellation: one file per kind of function."""

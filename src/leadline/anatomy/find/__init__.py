"""How an anatomy is found: traced, replayed, fitted, and judged by its balance."""

"""One sampled update: what the loop's own passes show, layer by layer."""

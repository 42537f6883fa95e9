"""Watch somebody's training loop: sample gauges per layer, warn, and never get in its way."""

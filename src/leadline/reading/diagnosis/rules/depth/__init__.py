"""Rules: Signal and gradient over depth."""

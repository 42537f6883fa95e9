"""Rules about which parameters take part, and in what."""

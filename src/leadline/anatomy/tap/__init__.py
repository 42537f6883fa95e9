"""Where tensors are taken from a running model: streams, writes, attention patterns."""

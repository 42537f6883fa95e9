"""Rules about how updates join the stream."""

"""Rules: Streams of several lanes, and experts."""

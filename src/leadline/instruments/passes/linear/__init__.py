"""Blocks as linear maps of small changes of the stream, for the probes that go block by block."""

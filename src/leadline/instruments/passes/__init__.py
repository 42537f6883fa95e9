"""Forward and backward passes of any model, read by probes into a record."""

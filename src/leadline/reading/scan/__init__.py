"""What is read from a scan: which checkpoints are unhealthy, what changes over them, and the table."""

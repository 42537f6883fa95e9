"""What the numbers of a record say: comparisons and trends, without torch."""

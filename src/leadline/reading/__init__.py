"""What is done with a record. Nothing here needs torch."""

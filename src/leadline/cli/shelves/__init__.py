"""What `leadline list` and `leadline explain` know about the catalogs."""

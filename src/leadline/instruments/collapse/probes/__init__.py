"""What `measure` reads about collapsing tokens."""

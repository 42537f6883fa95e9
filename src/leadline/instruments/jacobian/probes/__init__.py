"""What `measure` reads about block Jacobians."""

"""The output split over paths by how many branches they go through."""

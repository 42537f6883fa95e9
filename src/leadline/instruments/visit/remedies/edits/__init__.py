"""One file per kind of edit."""

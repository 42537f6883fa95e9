"""What the user sees while and after a command runs: voice, progress, columns, help."""

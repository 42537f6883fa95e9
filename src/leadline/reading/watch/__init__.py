"""What is done with a run that is watched: its history, warnings, heat maps and live screen."""

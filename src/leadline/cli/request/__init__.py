"""What the user typed, as objects: options that commands share, models, records."""

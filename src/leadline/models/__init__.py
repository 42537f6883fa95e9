"""Where models and their inputs come from."""

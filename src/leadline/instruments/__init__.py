"""What is done to a model: every instrument has one folder, with its result, text and picture."""

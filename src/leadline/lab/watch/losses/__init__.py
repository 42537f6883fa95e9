"""What backward is called on, and which of it is the loss of the model."""

"""What the optimizers take and do: gradients, second moments, and how far weights move."""

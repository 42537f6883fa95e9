"""Rules about weight tensors."""

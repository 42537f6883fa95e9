"""Rules: What the model predicts."""

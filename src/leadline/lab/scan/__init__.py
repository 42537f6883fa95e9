"""Many checkpoints, each measured and diagnosed: those of one training run, or many models."""

"""Fine-tuning with and without adapters, and what the first task loses."""

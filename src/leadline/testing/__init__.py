"""Material for tests, also for those of others: tiny models and contract checks."""

"""One visit to a model: every cheap measurement that a diagnosis asks for, in one record."""

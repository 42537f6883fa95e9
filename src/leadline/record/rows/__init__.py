"""What a record consists of: quantities, sites, readings, findings, profiles."""

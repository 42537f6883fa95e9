"""Rules about gains and eps of norms."""

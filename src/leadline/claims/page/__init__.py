"""How claims are shown: one page in three languages, the terminal, pictures."""

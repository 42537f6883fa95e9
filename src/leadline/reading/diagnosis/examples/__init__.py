"""The examples that the pages of rules show, kept as data, in words and as pictures."""

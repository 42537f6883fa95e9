"""One file per check; each adds rows and facts to the record of a visit."""

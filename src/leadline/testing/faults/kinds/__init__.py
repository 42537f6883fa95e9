"""The faults, in files by what is wrong."""

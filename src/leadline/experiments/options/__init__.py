"""The experiments and their options, one file each. Nothing here needs torch before it runs."""

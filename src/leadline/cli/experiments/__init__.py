"""The experiments of `leadline reproduce`, one file per command."""

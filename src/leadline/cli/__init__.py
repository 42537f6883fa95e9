"""The command line: thin, one file per command. Heavy modules are imported when a command runs."""

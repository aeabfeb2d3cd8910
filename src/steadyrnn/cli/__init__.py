"""The program, one file per command."""

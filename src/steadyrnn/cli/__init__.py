"""The program, one file a command."""

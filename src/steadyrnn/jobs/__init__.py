"""What the program does, as functions: a configuration in; a run, certificate, conversion or report out."""

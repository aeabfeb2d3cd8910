"""Each kernel: what it is compiled with, and its launch."""

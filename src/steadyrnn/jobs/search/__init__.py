"""The parts of a sweep: what is asked for, its folder and journal, one trial, and where trials run."""

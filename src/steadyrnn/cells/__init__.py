"""Cells: one time step as a pure function. A cell knows no time, no engine and no constraint."""

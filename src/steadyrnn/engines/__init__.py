"""Engines: run a cell over time on plain tensors. An engine knows no constraint and no layer."""

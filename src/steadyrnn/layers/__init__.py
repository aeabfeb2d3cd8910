"""Layers: drop-ins for torch's recurrent and linear layers, with any recurrent weight in a chosen set of matrices."""

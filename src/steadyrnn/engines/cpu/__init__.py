"""The CPU engine: one custom op a cell family, with a hand-written loop and adjoint."""

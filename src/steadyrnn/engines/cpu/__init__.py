"""The CPU engine: one custom op per family of cells, with a hand-written loop and adjoint."""

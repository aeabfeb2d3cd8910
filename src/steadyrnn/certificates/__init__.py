"""Read a module, call the bounds, say with proof how it behaves."""

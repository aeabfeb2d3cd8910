"""Pure tensor functions: reflections, exponentials, Cayley transforms, projections and norms."""

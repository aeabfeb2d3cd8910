"""Series of a user's own: read from files, understood, split, scaled, and made into a task."""

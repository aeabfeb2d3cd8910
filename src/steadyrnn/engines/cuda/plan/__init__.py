"""Which layout a kernel gets: how many blocks share a weight, and how many rows they run."""

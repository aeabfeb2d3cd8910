"""The run folder: configuration, metrics, checkpoints, lock."""

"""One theorem per function: numbers or plain tensors in, number out."""

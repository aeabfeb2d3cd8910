"""What every engine shares: calls, custom ops, families of cells, segments, products, double backward."""

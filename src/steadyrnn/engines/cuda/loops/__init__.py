"""The loops over time: kernels, and the products outside of time around them."""

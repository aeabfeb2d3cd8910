"""Many independent networks of one size at once: loops whose products are batched over the networks."""

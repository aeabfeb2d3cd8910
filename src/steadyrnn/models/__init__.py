"""Models: small networks made of the layers."""

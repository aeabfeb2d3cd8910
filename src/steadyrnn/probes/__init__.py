"""Measure a module on data: gradient flow by lag, spectrum."""

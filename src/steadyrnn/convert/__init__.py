"""Conversions: a module in, an equivalent module or file out."""

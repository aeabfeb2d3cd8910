"""Run folders in, pictures and one self-contained page out."""

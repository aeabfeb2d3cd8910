"""The numbers that the four papers print, one file per paper; free of torch."""

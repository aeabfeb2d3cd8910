"""The tables and figures of the papers: settings, published values, and how each is judged."""

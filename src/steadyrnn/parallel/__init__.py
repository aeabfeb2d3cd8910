"""Time-parallel evaluation of a layer that contracts: bounds, plan, run, report."""

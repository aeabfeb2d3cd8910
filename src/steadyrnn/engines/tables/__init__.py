"""Tables that ``steadyrnn bench --calibrate`` measured, one file per device: how long each engine takes for a step."""

"""Tables that ``steadyrnn bench --calibrate`` measured, one file a device: how long each engine takes for a step."""

"""Clocks, time limits, rates and turns on the event loop."""

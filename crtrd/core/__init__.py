"""WHAT TO DO: events in, effects out. Pure: no clock, no file, no environment, no random source (I3)."""

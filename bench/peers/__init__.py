"""Schedulers that the daemon is measured beside: how they get into the machine, and how each is given its jobs."""

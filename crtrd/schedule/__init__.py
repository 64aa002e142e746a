"""WHEN: what a schedule owes, computed from texts, zone and instants alone.

Pure: nothing here reads a clock, a file or the environment (zone data comes through zoneinfo).
`spec` is the way in; `spans` reads lengths and single instants. What becomes of an instant that is
due (catch-up, overlap of runs, retries) is the core's.
"""

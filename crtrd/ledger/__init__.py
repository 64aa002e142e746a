"""WHAT HAPPENED: one durable row per owed occurrence, in SQLite through peewee. Remembers; decides nothing."""

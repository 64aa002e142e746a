"""COMMAND LINE: crtrctl, a client of the bus. Translates and decides nothing; imports only what the verb needs."""

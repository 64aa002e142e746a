"""WHAT ONE MAY ASK: the verbs behind bus, socket and command line, and who may use them."""

"""TEXT -> DEFINITIONS: the table of keys, the readers of files and requests. Nothing here decides or remembers."""

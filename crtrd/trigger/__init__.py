"""SOCKET SURFACE: HTTP/1.1 and JSON on the trigger socket, translated to control's verbs; h11 has its door here."""

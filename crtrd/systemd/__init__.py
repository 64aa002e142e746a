"""THE SERVICE MANAGER: what crtrd tells it and gets from it, and the journal. Decides nothing."""

"""DRIVES THE CORE: decide, commit, perform; wake and leave; recover after a crash."""

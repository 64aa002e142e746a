"""BOOT-TIME REPAIRS of files, before anything else looks at them. Each step is idempotent and has a file of its own."""

"""OUTBOX -> SINKS: makes attempts to deliver and says what came of each. Which, when and how often is the core's."""

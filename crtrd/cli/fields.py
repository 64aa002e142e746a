"""The fields of the contract's JSON, in its order, and which of them are times or bytes. Tables, no code."""

LIST_FIELDS = ("id", "name", "state", "schedule", "timezone", "next", "held", "last_status", "last_run")
OCCURRENCE_FIELDS = (
    "id", "cron_id", "cron_name", "origin", "instant", "key", "label", "status", "reason", "detail", "cells",
    "created_at", "settled_at",
)
RUN_FIELDS = (
    "id", "cron_id", "cron_name", "occurrence_id", "target", "attempt", "trigger", "scheduled_at", "started_at",
    "finished_at", "duration_us", "result", "reason", "exit_code", "signal", "pid", "out_of_band", "stdout_head",
    "stdout_head_base64", "stdout_bytes", "stdout_sha256", "stdout_truncated", "stderr_head", "stderr_bytes",
    "stderr_truncated", "survivors", "delivered",
)

OUTBOX_FIELDS = ("id", "cron_name", "run_id", "sink", "state", "attempts", "next_attempt_at", "last_error")
ESCALATION_FIELDS = ("id", "cron_id", "cron_name", "occurrence_id", "at", "summary", "brief", "state")

TIMES = frozenset({
    "next", "instant", "created_at", "settled_at", "changed_at", "scheduled_at", "started_at", "finished_at",
    "due_at", "starts_at", "expires_at", "at", "next_attempt_at", "last_at", "next_wake", "started", "skips",
})
"""Microseconds since the epoch, shown in RFC 3339."""

SPANS = frozenset({"jitter", "timeout", "grace", "retry_delay", "retry_max_delay", "start_within", "alert_after"})
"""Microseconds, and in JSON called so: `timeout_us`."""

HEADS = frozenset({"stdout_head", "stderr_head"})
"""Bytes, shown as text and in base64."""

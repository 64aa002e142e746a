"""The tables as peewee sees them; private to this room. `schema` creates them, `rows` turns rows into values.

Instants and durations are integer microseconds. No model is bound to a global database.
"""

from peewee import BlobField, CompositeKey, IntegerField, Model, TextField


class CronRow(Model):
    id = TextField(primary_key=True)
    name = TextField(unique=True)
    definition = TextField()
    state = TextField()
    paused_by = TextField()
    note = TextField()
    owner = IntegerField()
    created_at = IntegerField()
    changed_at = IntegerField()
    anchor = IntegerField()
    considered = IntegerField()
    decided = IntegerField()
    next_at = IntegerField(null=True)
    after_end_at = IntegerField(null=True)
    failures = IntegerField()
    runs_counted = IntegerField()
    last_boot = TextField()
    skip_next = TextField()
    overlap = TextField()
    pool = TextField()
    account = TextField()
    failing_since = IntegerField(null=True)
    failing_count = IntegerField()
    source = TextField()
    serial = IntegerField()

    class Meta:
        table_name = "crons"


class DepartedRow(Model):
    id = TextField(primary_key=True)
    cron = TextField()
    delivers = TextField()

    class Meta:
        table_name = "departed"


class FormerRow(Model):
    id = TextField(primary_key=True)
    name = TextField()
    owner = IntegerField()

    class Meta:
        table_name = "former"


class OccurrenceRow(Model):
    serial = IntegerField(primary_key=True)
    id = TextField(unique=True)
    cron_id = TextField()
    cron_name = TextField()
    origin = TextField()
    instant = IntegerField()
    key = TextField()
    status = TextField()
    reason = TextField()
    detail = TextField()
    label = TextField()
    target = TextField()
    overlap = TextField()
    created_at = IntegerField()
    due_at = IntegerField()
    settled_at = IntegerField(null=True)
    covers = IntegerField()
    fence = IntegerField()
    alert_at = IntegerField(null=True)

    class Meta:
        table_name = "occurrences"


class CellRow(Model):
    occurrence_id = TextField()
    target = TextField()
    status = TextField()
    attempts = IntegerField()
    shortages = IntegerField()
    due_at = IntegerField()
    excused = IntegerField()
    place = IntegerField()

    class Meta:
        table_name = "cells"
        primary_key = CompositeKey("occurrence_id", "target")


class RunRow(Model):
    serial = IntegerField(primary_key=True)
    id = TextField(unique=True)
    occurrence_id = TextField()
    cron_id = TextField()
    cron_name = TextField()
    target = TextField()
    attempt = IntegerField()
    trigger = TextField()
    scheduled_at = IntegerField()
    phase = TextField()
    out_of_band = IntegerField()
    fence = IntegerField()
    created_at = IntegerField()
    boot_id = TextField(null=True)
    pid = IntegerField(null=True)
    start_ticks = IntegerField(null=True)
    cgroup = TextField()
    started_at = IntegerField(null=True)
    finished_at = IntegerField(null=True)
    duration = IntegerField(null=True)
    stopping = TextField()
    result = TextField(null=True)
    reason = TextField()
    exit_code = IntegerField(null=True)
    signal = IntegerField(null=True)
    stdout_head = BlobField()
    stdout_total = IntegerField()
    stdout_sha256 = TextField()
    stderr_head = BlobField()
    stderr_total = IntegerField()
    stderr_sha256 = TextField()
    survivors = TextField()
    delivered = TextField()
    stdout_masked = TextField()

    class Meta:
        table_name = "runs"


class LeaseRow(Model):
    occurrence_id = TextField(primary_key=True)
    owner = TextField()
    boot_id = TextField()
    until = IntegerField()
    fence = IntegerField()

    class Meta:
        table_name = "leases"


class OutboxRow(Model):
    serial = IntegerField(primary_key=True)
    id = TextField(unique=True)
    cron_id = TextField()
    cron_name = TextField()
    owner = IntegerField()
    occurrence_id = TextField()
    run_id = TextField()
    target = TextField()
    kind = TextField()
    sink = TextField()
    queue = TextField()
    message = BlobField()
    created_at = IntegerField()
    next_attempt_at = IntegerField()
    state = TextField()
    attempts = IntegerField()
    last_error = TextField()
    settled_at = IntegerField(null=True)
    sha256 = TextField()

    class Meta:
        table_name = "outbox"


class QueueRow(Model):
    name = TextField(primary_key=True)
    until = IntegerField()
    failures = IntegerField()

    class Meta:
        table_name = "queues"


class ToldRow(Model):
    cron_id = TextField()
    target = TextField()
    sink = TextField()
    sha256 = TextField()
    head = BlobField()
    at = IntegerField()

    class Meta:
        table_name = "told"
        primary_key = CompositeKey("cron_id", "target", "sink")


class EscalationRow(Model):
    serial = IntegerField(primary_key=True)
    id = TextField(unique=True)
    cron_id = TextField()
    cron_name = TextField()
    owner = IntegerField()
    occurrence_id = TextField()
    at = IntegerField()
    summary = TextField()
    brief = TextField()
    state = TextField()
    error = TextField()
    look_at = IntegerField(null=True)
    boot_id = TextField()

    class Meta:
        table_name = "escalations"


class KeyRow(Model):
    cron_id = TextField()
    key = TextField()
    arguments = TextField()
    occurrence_id = TextField()
    at = IntegerField()

    class Meta:
        table_name = "trigger_keys"
        primary_key = CompositeKey("cron_id", "key")


class MetaRow(Model):
    key = TextField(primary_key=True)
    value = TextField()

    class Meta:
        table_name = "meta"


MODELS: tuple[type[Model], ...] = (
    CronRow, DepartedRow, FormerRow, OccurrenceRow, CellRow, RunRow, LeaseRow, OutboxRow, QueueRow, ToldRow,
    EscalationRow, KeyRow, MetaRow,
)

"""What surfaces show of crons, occurrences and runs: plain tables whose keys are the fields of CONTRACT §5.

Instants are microseconds since the epoch, None is absent, heads are bytes. Surfaces turn them into their own types.
"""

from dataclasses import fields

from crtrd.core.cron import Cron, Definition
from crtrd.core.delivery import Delivery, DeliveryState, Escalation
from crtrd.core.occurrence import Cell, Occurrence, Run
from crtrd.core.sinks import parse
from crtrd.core.timetable import instants_ahead
from crtrd.ledger.queries import Standing

View = dict[str, object]


def cron_view(cron: Cron, standing: Standing) -> View:
    """The row of `list`."""
    return {
        "id": cron.id, "name": cron.name, "state": str(cron.state), "paused_by": str(cron.paused_by),
        "note": cron.note, "schedule": list(cron.definition.schedule), "timezone": cron.definition.timezone,
        "next": next(instants_ahead(cron), None), "skips": list(cron.skip_next),
        "held": standing.held, "running": standing.running, "last_status": standing.last_status,
        "last_at": standing.last_at, "last_run": standing.last_run, "last_result": standing.last_result,
        "failures": cron.failures, "owner": cron.owner, "source": cron.source, "created_at": cron.created_at,
        "changed_at": cron.changed_at,
    }


def cron_details(cron: Cron, summary: View) -> View:
    """`list`'s row and every key of the definition that differs from its default. Environment values included."""
    shown = dict(summary)
    definition = cron.definition
    for field in fields(Definition):
        value = getattr(definition, field.name)
        if field.name in shown or (value == field.default and field.name not in definition.pinned):
            continue
        shown[field.name] = _plain(value)
    shown["timeout"], shown["grace"] = definition.timeout, definition.grace
    shown["overlap"] = str(definition.overlap)
    return shown


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        if value and isinstance(value[0], tuple):
            return dict(value)
        return list(value)
    return str(value) if isinstance(value, str) else value


def occurrence_view(each: Occurrence, cells: list[Cell]) -> View:
    return {
        "id": each.id, "cron_id": each.cron_id, "cron_name": each.cron_name, "origin": str(each.origin),
        "instant": each.instant, "key": each.key, "label": each.label, "status": str(each.status),
        "reason": str(each.reason), "detail": each.detail, "covers": each.covers, "fence": each.fence,
        "cells": [_cell_text(cell) for cell in cells], "created_at": each.created_at, "settled_at": each.settled_at,
    }


def _cell_text(cell: Cell) -> str:
    return f"{cell.target}={cell.status}"


def run_view(run: Run) -> View:
    return {
        "id": run.id, "cron_id": run.cron_id, "cron_name": run.cron_name, "occurrence_id": run.occurrence_id,
        "target": run.target, "attempt": run.attempt, "trigger": str(run.trigger), "phase": str(run.phase),
        "scheduled_at": run.scheduled_at, "started_at": run.started_at, "finished_at": run.finished_at,
        "duration_us": run.duration, "result": str(run.result) if run.result else None, "reason": run.reason,
        "exit_code": run.exit_code, "signal": run.signal, "pid": run.identity.pid if run.identity else None,
        "out_of_band": run.out_of_band, "fence": run.fence, "cgroup": run.cgroup, "stdout_head": run.stdout.head,
        "stdout_bytes": run.stdout.total, "stdout_sha256": run.stdout.sha256,
        "stdout_truncated": run.stdout.truncated, "stderr_head": run.stderr.head, "stderr_bytes": run.stderr.total,
        "stderr_sha256": run.stderr.sha256, "stderr_truncated": run.stderr.truncated,
        "survivors": list(run.survivors), "delivered": run.delivered,
    }


def delivery_view(each: Delivery) -> View:
    """Without the message, and of the sink only what may be shown."""
    try:
        sink = parse(each.sink).label
    except ValueError:
        sink = each.sink.partition(":")[0]
    waits = each.state is DeliveryState.PENDING
    return {
        "id": each.id, "cron_id": each.cron_id, "cron_name": each.cron_name, "occurrence_id": each.occurrence_id,
        "run_id": each.run_id or None, "kind": str(each.kind), "sink": sink, "state": str(each.state),
        "attempts": each.attempts, "next_attempt_at": each.next_attempt_at if waits else None,
        "last_error": each.last_error or None, "created_at": each.created_at, "settled_at": each.settled_at,
    }


def escalation_view(each: Escalation) -> View:
    return {
        "id": each.id, "cron_id": each.cron_id, "cron_name": each.cron_name, "occurrence_id": each.occurrence_id,
        "at": each.at, "summary": each.summary, "brief": each.brief, "state": str(each.state),
        "error": each.error or None,
    }

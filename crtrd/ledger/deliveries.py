"""The outbox as the core asks for it inside a transaction: what is due, in which queue, and what was told last."""

from peewee import SqliteDatabase

from crtrd.core.delivery import Delivery, Escalation, Queue, Told
from crtrd.core.occurrence import Key, Run
from crtrd.ledger import rows

FIRST_DUE = """ WHERE d.serial IN (
     SELECT (SELECT r.serial FROM outbox r WHERE r.state = 'pending' AND r.queue = p.queue
              ORDER BY r.next_attempt_at, r.serial LIMIT 1)
       FROM (SELECT queue, min(next_attempt_at) AS first FROM outbox WHERE state = 'pending' GROUP BY queue) p
       LEFT JOIN queues q ON q.name = p.queue
      WHERE p.first <= ? AND coalesce(q.until, 0) <= ?
        AND NOT EXISTS (SELECT 1 FROM outbox s WHERE s.state = 'sending' AND s.queue = p.queue))
   ORDER BY d.serial LIMIT ?"""
"""Of each queue the one that has been due for longest: who failed goes behind who was never tried."""
QUEUED = """(SELECT max(p.first, coalesce(q.until, 0)) AS at FROM
     (SELECT queue, min(next_attempt_at) AS first FROM outbox WHERE state = 'pending' GROUP BY queue) p
     LEFT JOIN queues q ON q.name = p.queue)"""
"""When each queue is to be looked at next."""

ESCALATIONS_OWED = """SELECT (SELECT count(*) FROM escalations WHERE state = 'open'),
     (SELECT min(look_at) FROM escalations WHERE look_at IS NOT NULL)"""


class Deliveries:
    """The part of a session that is about the outbox. Lives only in the ledger's thread."""

    _database: SqliteDatabase

    def _all(self, sql: str, *values: object) -> list[rows.Row]:
        return list(self._database.execute_sql(sql, values))

    def _one(self, sql: str, *values: object) -> rows.Row | None:
        found: rows.Row | None = self._database.execute_sql(sql, values).fetchone()
        return found

    def _count(self, sql: str, *values: object) -> int:
        found = self._one(sql, *values)
        return int(found[0]) if found else 0

    def _deliveries(self, where: str, *values: object) -> list[Delivery]:
        return [rows.delivery_from_row(row) for row in self._all(rows.DELIVERY_SELECT + where, *values)]

    def delivery(self, delivery_id: str) -> Delivery | None:
        row = self._one(rows.DELIVERY_SELECT + " WHERE d.id = ?", delivery_id)
        return rows.delivery_from_row(row) if row else None

    def deliveries_due(self, now: int, limit: int) -> list[Delivery]:
        return self._deliveries(FIRST_DUE, now, now, limit)

    def deliveries_beyond(self, at: int) -> list[Delivery]:
        beyond = " INDEXED BY outbox_pending WHERE d.state = 'pending' AND d.next_attempt_at > ? ORDER BY d.serial"
        return self._deliveries(beyond, at)

    def sending(self) -> list[Delivery]:
        return self._deliveries(" INDEXED BY outbox_sending WHERE d.state = 'sending' ORDER BY d.serial")

    def sending_count(self) -> int:
        return self._count("SELECT count(*) FROM outbox WHERE state = 'sending'")

    def queue(self, name: str) -> Queue:
        row = self._one("SELECT name, until, failures FROM queues WHERE name = ?", name)
        return Queue(*row) if row else Queue(name)

    def queues_beyond(self, at: int) -> list[Queue]:
        return [Queue(*row) for row in self._all("SELECT name, until, failures FROM queues WHERE until > ?", at)]

    def told(self, cron_id: str, target: str, sink: str) -> Told | None:
        row = self._one(
            "SELECT cron_id, target, sink, sha256, head, at FROM told WHERE cron_id = ? AND target = ? AND sink = ?",
            cron_id, target, sink)
        return Told(row[0], row[1], row[2], row[3], bytes(row[4]), row[5]) if row else None

    def telling(self, cron_id: str, target: str, sink: str) -> Delivery | None:
        found = self._deliveries(
            " WHERE d.settled_at IS NULL AND d.cron_id = ? AND d.sink = ? AND d.target = ? AND d.sha256 <> ''"
            " ORDER BY d.serial DESC LIMIT 1", cron_id, sink, target)
        return found[0] if found else None

    def last_runs(self, cron_id: str, limit: int) -> list[Run]:
        sql = rows.RUN_SELECT + " WHERE r.cron_id = ? ORDER BY r.serial DESC LIMIT ?"
        return [rows.run_from_row(row) for row in self._all(sql, cron_id, limit)]

    def escalation(self, escalation_id: str) -> Escalation | None:
        row = self._one(rows.ESCALATION_SELECT + " WHERE e.id = ?", escalation_id)
        return rows.escalation_from_row(row) if row else None

    def open_escalations(self) -> list[Escalation]:
        return self._escalations(" WHERE e.state = 'open' ORDER BY e.serial")

    def watched_escalations(self) -> list[Escalation]:
        return self._escalations(" WHERE e.look_at IS NOT NULL ORDER BY e.look_at")

    def _escalations(self, where: str) -> list[Escalation]:
        return [rows.escalation_from_row(row) for row in self._all(rows.ESCALATION_SELECT + where)]

    def escalations_owed(self) -> tuple[int, int | None]:
        """Those that are not begun yet; and when the next look is due, which may have passed."""
        row = self._one(ESCALATIONS_OWED)
        return (int(row[0]), row[1]) if row else (0, None)

    def trigger_key(self, cron_id: str, key: str, since: int) -> Key | None:
        row = self._one(
            "SELECT cron_id, key, arguments, occurrence_id, at FROM trigger_keys "
            "WHERE cron_id = ? AND key = ? AND at > ?", cron_id, key, since)
        return Key(*row) if row else None

    def outbox_owed(self, now: int, looked: int) -> tuple[int, int | None]:
        """Queues with something due and attempts under way; and the first that is due after `looked`, which may have
        passed. Mostly there is nothing."""
        if not self._count("SELECT EXISTS (SELECT 1 FROM outbox WHERE settled_at IS NULL)"):
            return 0, None
        due = self._count(f"SELECT count(*) FROM {QUEUED} WHERE at <= ?", now)  # noqa: S608 - a constant
        return due + self.sending_count(), self.next_delivery(looked)

    def next_delivery(self, now: int) -> int | None:
        row = self._one(f"SELECT min(at) FROM {QUEUED} WHERE at > ?", now)  # noqa: S608 - a constant
        return row[0] if row else None

    # records -----------------------------------------------------------------------------------------------------

    def put_delivery(self, delivery: Delivery, *, fresh: bool) -> None:
        statement = rows.DELIVERY_INSERT if fresh else rows.DELIVERY_UPSERT
        self._database.execute_sql(statement, rows.delivery_row(delivery))

    def put_escalation(self, escalation: Escalation) -> None:
        self._database.execute_sql(rows.ESCALATION_UPSERT, rows.escalation_row(escalation))

    def put_key(self, key: Key) -> None:
        self._database.execute_sql(
            rows.KEY_UPSERT, (key.cron_id, key.key, key.arguments, key.occurrence_id, key.at))

    def put_queue(self, queue: Queue) -> None:
        if queue.failures:
            self._database.execute_sql(rows.QUEUE_UPSERT, (queue.name, queue.until, queue.failures))
        else:
            self._database.execute_sql("DELETE FROM queues WHERE name = ?", (queue.name,))

    def put_told(self, told: Told) -> None:
        self._database.execute_sql(
            rows.TOLD_UPSERT, (told.cron_id, told.target, told.sink, told.sha256, told.head, told.at))

"""When a failed attempt is tried again: exponential delays, stored in the ledger so that they survive a restart.

A shortage (no process, no descriptor, no space) is our fault: it has a count and delays of its own and uses up none
of the cron's retries.
"""

from crtrd.core.cron import MINUTE, SECOND, Definition
from crtrd.core.occurrence import Cell

SHORTAGE_LIMIT = 20
SHORTAGE_LONGEST = MINUTE


def retry_delay(definition: Definition, cell: Cell) -> int | None:
    """Microseconds until the next attempt after a failure of this cell, None when the retries are used up."""
    failed = cell.attempts - cell.shortages - cell.excused
    if failed > definition.retries:
        return None
    return min(definition.retry_delay << min(max(failed - 1, 0), 40), definition.retry_max_delay)


def shortage_delay(cell: Cell) -> int | None:
    """Microseconds until a start that failed for want of resources is tried again, None at the limit."""
    if cell.shortages > SHORTAGE_LIMIT:
        return None
    return min(SECOND << min(max(cell.shortages - 1, 0), 10), SHORTAGE_LONGEST)


def longest_wait(definition: Definition, cell: Cell) -> int:
    """Microseconds after which a cell that waits for its next attempt is due in any case; 0 before the first."""
    if not cell.attempts:
        return 0
    waits = [retry_delay(definition, cell)]
    if cell.shortages:
        waits.append(shortage_delay(cell))
    return max((each for each in waits if each is not None), default=0)

"""How many refusals are told: a stranger who keeps asking must not fill the journal."""

from collections.abc import Callable

MINUTE = 60_000_000
TOLD = 20
"""Refusals of one user that are told in a minute."""
REMEMBERED = 256
"""Users that are counted at once."""


class Denials:
    """Counts by uid; who cannot be identified counts as one."""

    def __init__(self, mono: Callable[[], int]) -> None:
        self._mono = mono
        self._counts: dict[int | None, tuple[int, int]] = {}

    def tell(self, uid: int | None) -> bool:
        """Whether this refusal is to be told."""
        now = self._mono()
        since, count = self._counts.pop(uid, (now, 0))
        if now - since >= MINUTE:
            since, count = now, 0
        self._counts[uid] = since, count + 1
        if len(self._counts) > REMEMBERED:
            del self._counts[next(iter(self._counts))]
        return count < TOLD

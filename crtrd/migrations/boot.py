"""The ordered list of repairs that runs at every start, before supervision touches anything.

Every step is idempotent: what it has repaired once it finds in order the next time, and rewrites nothing. A step that
fails is reported and does not stop the others, nor the daemon. What a step does is told in its own file.
"""

from collections.abc import Callable

from crtrd.migrations import legacy_inbox_identities, orphan_cgroups, state_modes
from crtrd.migrations.folder import Changes, Trouble
from crtrd.names import Places
from crtrd.values import dataclass


@dataclass(frozen=True, slots=True)
class Applied:
    """`changes` says what the step changed, as words and counts."""

    id: str
    changes: dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Failed:
    id: str
    reason: str


def run_boot_list(places: Places, *, cgroup_orphans: Callable[[], list[str]] | None) -> list[Applied | Failed]:
    """Run every step. One that changed nothing says nothing; one that did a part of its work says both.

    `cgroup_orphans` removes the empty control groups of earlier lives and names them; None where there are none.
    """
    steps: tuple[tuple[str, Callable[[], Changes]], ...] = (
        ("legacy-inbox-identities", lambda: legacy_inbox_identities.repair(places.inbox)),
        ("state-modes", lambda: state_modes.repair(places.state)),
        ("orphan-cgroups", lambda: orphan_cgroups.repair(cgroup_orphans)),
    )
    return [result for name, step in steps for result in _run(name, step)]


def _run(name: str, step: Callable[[], Changes]) -> list[Applied | Failed]:
    changes: Changes = {}
    failed: list[Applied | Failed] = []
    try:
        changes = step()
    except Trouble as trouble:
        changes = trouble.changes
        failed = [Failed(name, str(trouble))]
    except Exception as error:  # noqa: BLE001  even a bug in a repair must not keep the daemon from starting
        failed = [Failed(name, str(error) or type(error).__name__)]
    said = {key: value for key, value in changes.items() if value}
    applied: list[Applied | Failed] = [Applied(name, said)] if said else []
    return applied + failed

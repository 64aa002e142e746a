"""Step `orphan-cgroups`: empty control groups that runs of earlier lives have left behind are removed.

How control groups are found and removed is supervision's knowledge; it comes in as a callable.
"""

from collections.abc import Callable

from crtrd.migrations.folder import Changes


def repair(remove_orphans: Callable[[], list[str]] | None) -> Changes:
    removed = remove_orphans() if remove_orphans else []
    return {"removed": len(removed), "names": " ".join(removed)}

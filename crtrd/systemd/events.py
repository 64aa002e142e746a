"""The fixed MESSAGE_ID of every kind of event: what people filter the journal by and the catalog is looked up with.

An id never changes and is never used again for something else. packaging/catalog/crtrd.catalog explains each of them.
"""

from collections.abc import Mapping
from types import MappingProxyType

LOST = "journal.lost"
"""The journal's own: entries that it did not take."""

MESSAGE_IDS: Mapping[str, str] = MappingProxyType({
    "daemon.started": "66654f7b80ef4337bf1bcf24ca7e0401",
    "daemon.boot_migration.applied": "ca9f180f17c34ff383e6fe342108f743",
    "daemon.boot_migration.failed": "89e967bde0bc40d2b0d71fc40c4a1c5f",
    "daemon.idle": "8166628dbc5c49b5a229f9cabd7627f2",
    "daemon.max_lifetime": "0fe3c02f3db6402cb2ed5401f15c9a4b",
    "daemon.stopping": "d2e2941825ab496d9225553e08428d75",
    "daemon.reexec": "2dc4eb0b60d64e039f44cbff023206b2",
    "config.reloaded": "9d6c92b8424a49b4be2ea1aee49a585f",
    "config.rejected": "3a3f432169e546c2aea6b5afbd71f8fb",
    "cron.armed": "a8b7bfaccb634a449c1f012b024f5865",
    "cron.changed": "e7850e2091a744c9928a8a7a82f9e826",
    "cron.canceled": "505d1ae40e9e44d399d60e86830d3fa1",
    "cron.paused": "40e1add109304847827fe34b88916dc0",
    "cron.resumed": "a4b779d7a2ef451e83f8058a01936215",
    "cron.poked": "026c61a9ed4a4ab88e30431efe305d92",
    "cron.expired": "38793b2582d14c6ab180e49aee42c05f",
    "cron.occurrence.accepted": "9987c34cd2af4f0fb65a024a94b9295b",
    "cron.occurrence.skipped": "1482c0ab71fe40b3998f45203ac50321",
    "cron.occurrence.missed": "dd627523005b4177ae1d8efe1ef0c8cf",
    "cron.occurrence.settled": "3f9aa5164cdc4756a5e35e6cc4d35d94",
    "cron.run.started": "edf7c46f384146d3a91ada23fb63b3dd",
    "cron.run.held": "b1dfaab977d74c36884b7100ca858173",
    "cron.run.settled": "0af2a13b386c462d9a817c85b249bcbe",
    "cron.run.unobserved": "05c5147754a44dc8bbca4332101c81ac",
    "cron.run.late": "44a8195e6e0541edb352e9c17c4deaf6",
    "cron.run.abandoned": "c4c20965ab954d03918ae3fa8e652b77",
    "cron.occurrence.late": "d3abb43a1e5f4bb88096b431e2984baf",
    "cron.capacity.deferred": "00b1c146e224456abd6137b83ee189ea",
    "cron.failure.escalated": "ddb7f729845f4fd6907d5cbdb23f7f47",
    "cron.escalation.spawn_failed": "a74c569ceb454ec79f5c7a96b93f6e5f",
    "cron.profile.missing": "083442497f8a4de9a5be2923677a3bb8",
    "cron.recovered": "a15f87364e134107b96abe97eab808c2",
    "outbox.delivered": "14c975ac523541e5924ca4e0dec58cac",
    "outbox.retrying": "c1ecaf7d142c49e6b770edabf2695532",
    "outbox.dead": "b4bad7c3a6e44eb39e3e130d173178d3",
    "auth.denied": "8fec03b417eb46928ec26942c79d9ea1",
    "daemon.failed": "7695076a69f94bab8a283c2dcd186865",
    "bus.trouble": "45e9c8a6f7fb48ea80918c352c996e9d",
    "daemon.no_cgroups": "2fcf9f1f888d4316a93734df82e2e88a",
    "daemon.wake.failed": "bc3929379345486485f91da50b59ff5d",
    "daemon.lease.lost": "7c722a4290e74fa8b519b8f3c72eb6fb",
    "ledger.damaged": "3570c8ec58724448b3345e648ceeadca",
    "ledger.growing": "1ddb3a4c52d04e9abaad2455934d6409",
    "ledger.unavailable": "c1b89cf1ed6a450a90a3758e8564a75e",
    "ledger.available": "ec907469a19b43499b16f9c18c337e56",
    LOST: "6ddeb6fdf3894a939a8ff296c69817d7",
})

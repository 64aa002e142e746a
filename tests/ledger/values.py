"""Hypothesis strategies for everything that the ledger stores: each field over all that it may hold."""

from hypothesis import strategies as st

from crtrd.core.cron import (
    CatchUp,
    Cron,
    Definition,
    Departed,
    OnCrash,
    OnFailure,
    OnOutput,
    Overlap,
    PausedBy,
    State,
    Survivors,
)
from crtrd.core.delivery import Delivery, DeliveryState, Queue, Told
from crtrd.core.disposition import Kind
from crtrd.core.occurrence import (
    Cell,
    Identity,
    Occurrence,
    Origin,
    Output,
    Phase,
    Reason,
    Result,
    Run,
    Status,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBER = st.integers(-(1 << 63), (1 << 63) - 1)
INSTANT = st.integers(0, 1 << 60)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
PAIRS = st.dictionaries(TEXT, TEXT, max_size=3).map(lambda table: tuple(table.items()))
ID = st.text("0123456789abcdef", min_size=32, max_size=32)


def maybe(strategy):
    return st.none() | strategy


DEFINITIONS = st.builds(
    Definition, name=TEXT, schedule=TEXTS, timezone=TEXT, dst_gap=TEXT, dst_overlap=TEXT, jitter=INSTANT,
    starts_at=maybe(INSTANT), expires_at=maybe(INSTANT), max_runs=maybe(INSTANT), exclude=TEXTS, command=TEXTS,
    shell=maybe(TEXT), stdin=TEXT, targets=TEXTS, target_parallel=INSTANT, profile=TEXT, user=TEXT, cwd=TEXT, env=PAIRS,
    umask=maybe(INSTANT), overlap=st.sampled_from(Overlap), queue_limit=INSTANT, parallel=maybe(INSTANT), pool=TEXT,
    timeout=INSTANT, grace=INSTANT, retries=INSTANT, retry_delay=INSTANT, retry_max_delay=INSTANT,
    success_exit_codes=st.lists(INSTANT, max_size=3).map(tuple), held_exit_code=INSTANT,
    catch_up=st.sampled_from(CatchUp), start_within=maybe(INSTANT), on_crash=st.sampled_from(OnCrash),
    on_output=st.sampled_from(OnOutput), change_ignore=TEXTS, sinks=TEXTS, alert_after=maybe(INSTANT),
    on_failure=st.sampled_from(OnFailure), pause_after=INSTANT, survivors=st.sampled_from(Survivors), resources=PAIRS,
    inherited=TEXTS, pinned=TEXTS,
)
CRONS = st.builds(
    Cron, id=ID, definition=DEFINITIONS, state=st.sampled_from(State), owner=NUMBER, created_at=NUMBER,
    changed_at=NUMBER, anchor=NUMBER, considered=NUMBER, decided=NUMBER, next_at=maybe(NUMBER),
    paused_by=st.sampled_from(PausedBy), note=TEXT, failures=NUMBER, runs_counted=NUMBER, after_end_at=maybe(NUMBER),
    last_boot=TEXT, skip_next=st.lists(NUMBER, max_size=3).map(tuple), account=TEXT, failing_since=maybe(NUMBER),
    failing_count=NUMBER, source=TEXT,
)
DEPARTED = st.builds(Departed, cron=CRONS, delivers=TEXT)
OCCURRENCES = st.builds(
    Occurrence, id=ID, cron_id=TEXT, cron_name=TEXT, origin=st.sampled_from(Origin), instant=NUMBER, key=TEXT,
    status=st.sampled_from(Status), created_at=NUMBER, due_at=NUMBER, label=TEXT, reason=st.sampled_from(Reason),
    detail=TEXT, settled_at=maybe(NUMBER), covers=NUMBER, fence=NUMBER, target=TEXT, overlap=TEXT,
    alert_at=maybe(NUMBER),
)
CELLS = st.builds(
    Cell, occurrence_id=ID, target=TEXT, status=st.sampled_from(Status), attempts=NUMBER, shortages=NUMBER,
    due_at=NUMBER, excused=NUMBER, place=NUMBER,
)
MASKED = st.builds(Output, head=st.binary(max_size=20), total=NUMBER, sha256=TEXT, masked=TEXT)
OUTPUTS = st.builds(Output, head=st.binary(max_size=20), total=NUMBER, sha256=TEXT)
RUNS = st.builds(
    Run, id=ID, occurrence_id=ID, cron_id=TEXT, cron_name=TEXT, target=TEXT, attempt=NUMBER,
    trigger=st.sampled_from(Origin), scheduled_at=NUMBER, phase=st.sampled_from(Phase), out_of_band=st.booleans(),
    fence=NUMBER, created_at=NUMBER, identity=maybe(st.builds(Identity, boot_id=TEXT, pid=NUMBER, start_ticks=NUMBER)),
    cgroup=TEXT, started_at=maybe(NUMBER), finished_at=maybe(NUMBER), duration=maybe(NUMBER), stopping=TEXT,
    result=maybe(st.sampled_from(Result)), reason=TEXT, exit_code=maybe(NUMBER), signal=maybe(NUMBER), stdout=MASKED,
    stderr=OUTPUTS, survivors=TEXTS, delivered=TEXT,
)
DELIVERIES = st.builds(
    Delivery, id=ID, cron_id=TEXT, cron_name=TEXT, owner=NUMBER, occurrence_id=TEXT, run_id=TEXT, target=TEXT,
    kind=st.sampled_from(Kind), sink=TEXT, queue=TEXT, message=TEXT, created_at=NUMBER, next_attempt_at=NUMBER,
    state=st.sampled_from(DeliveryState), attempts=NUMBER, last_error=TEXT, settled_at=maybe(NUMBER), sha256=TEXT,
)
QUEUES = st.builds(Queue, name=TEXT, until=NUMBER, failures=st.integers(1, 1 << 40))
TOLD = st.builds(
    Told, cron_id=TEXT, target=TEXT, sink=TEXT, sha256=TEXT, head=st.binary(max_size=20), at=NUMBER)

"""Page views: counts (S17), paths (S16), with what else users did (S18), popular pages (S24), who has left (S25)."""

from recount import (
    LONG,
    STRING,
    KeyState,
    RecordSchema,
    Row,
    Topic,
    Topology,
    col,
    count,
    fold,
    milliseconds,
    session,
    stream,
    table,
    tumbling,
)
from topologies.customers import users

page_views = Topic(
    name="page-views",
    key="user_id",
    value=RecordSchema.of(user_id=STRING, page=STRING, required=("user_id", "page")),
)

user_actions = Topic(
    name="user-actions",
    key="user_id",
    value=RecordSchema.of(user_id=STRING, action=STRING, required=("user_id", "action")),
)

_views_by_user = stream(page_views).select_key(user_id=col("user_id"))

page_view_counts = Topology(
    name="page-view-counts",
    sinks=[
        _views_by_user.windowed_by(tumbling("5 min", grace="1 min"))
        .aggregate(views=count())
        .emit_final()
        .to(Topic(name="windowed-counts", key="user_id"))
    ],
)


enriched_events = Topology(
    name="enriched-events",
    sinks=[
        _views_by_user.select("page")
        .join(
            stream(user_actions).select_key(user_id=col("user_id")).select("action"),
            before="1 min",
            after="1 min",
            grace="10 s",
        )
        .join_table(table(users).select("name", "tier"))
        .to(Topic(name="enriched-events", key="user_id"))
    ],
)


def _then(path: str, page: str | None) -> str:
    return f"{path} {page or ''}".strip()


def _joined(earlier: str, later: str) -> str:
    return f"{earlier} {later}".strip()


page_paths = Topology(
    name="page-paths",
    sinks=[
        _views_by_user.windowed_by(session("30 min", grace="1 min"))
        .aggregate(path=fold("page", initial=str, adder=_then, merger=_joined, returns=STRING))
        .emit_final()
        .to(Topic(name="page-paths", key="user_id"))
    ],
)

page_popularity = Topology(
    name="page-popularity",
    sinks=[
        stream(page_views)
        .select_key(page=col("page"))
        .windowed_by(tumbling("1 h", grace="1 min"))
        .aggregate(views=count())
        .emit_after("10 s")
        .to(Topic(name="page-popularity", key="page"))
    ],
)

_AWAY_MS = milliseconds("30 min")


def _seen(view: Row, state: KeyState) -> list[Row]:
    """One timer waits for each user, however many pages they view: it is set again when they have been seen since."""
    if not state.remembered:
        state.schedule(state.timestamp_ms + _AWAY_MS)
    last_ms = max(state.remembered.get("last_ms", 0), state.timestamp_ms)
    state.remembered |= {"last_ms": last_ms, "views": state.remembered.get("views", 0) + 1, "page": view["page"]}
    return []


def _gone(at_ms: int, state: KeyState) -> list[Row]:
    away_ms = state.remembered["last_ms"] + _AWAY_MS
    if at_ms < away_ms:
        state.schedule(away_ms)
        return []
    left = {"views": state.remembered["views"], "last_page": state.remembered["page"]}
    state.remembered.clear()
    return [left]


departed_users = Topology(
    name="departed-users",
    sinks=[
        stream(page_views)
        .process(_seen, on_timer=_gone, views=LONG, last_page=STRING)
        .to(Topic(name="departed-users", key="user_id"))
    ],
)

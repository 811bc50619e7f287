"""The pages of the plugin: what they show, what they say where there is nothing, and what their buttons start."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi.testclient import TestClient
from tests.shown_shop import NOW_MS, ShownShop, shown_shop
from tests.statuses import a_status
from tests.unit.serve.written_streams import WrittenStream, as_arrivals

from recount.airflow import pages
from recount.airflow.links import PAGES
from recount.airflow.page_orders import DagState, token_for
from recount.kafka.connection import Connection
from recount.kafka.lags import PartitionLag, StreamLag
from recount.kafka.status import StreamStatus
from recount.pages.stream_lines import BrokersSay, BrokerWatch
from recount.runtime.settings import Settings
from recount.tables.places import Tables

STREAM = "revenue-by-region"
HOSTILE = "</td><script>alert(1)</script><img src=//evil.example/x onerror=alert(1)>"


@pytest.fixture
def shop(tmp_path: Path) -> ShownShop:
    return shown_shop(tmp_path)


@pytest.fixture
def client(shop: ShownShop) -> Iterator[TestClient]:
    with shop.served() as app:
        yield TestClient(app, follow_redirects=False)


def page(client: TestClient, path: str, status: int = 200) -> str:
    found = client.get(f"{PAGES}{path}")
    assert found.status_code == status, found.text
    return found.text


def text_of(html: str) -> str:
    """What a reader sees of ``html``."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def row(html: str, stream: str) -> str:
    """The row of ``stream`` in the overview, as text."""
    [found] = [one for one in html.split("<tr") if f'/streams/{stream}"' in one]
    return text_of(f"<tr{found}")


class Loaded(HTMLParser):
    """Everything that a browser would load, follow or send to."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []
        self.tags: set[str] = set()
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.places += [value or "" for name, value in attrs if name in ("href", "src", "action", "srcset", "data")]
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "style"]


def loaded(html: str) -> Loaded:
    parser = Loaded()
    parser.feed(html)
    return parser


def test_the_overview_has_every_stream_grouped_by_module_with_those_first_that_need_a_look(
    shop: ShownShop, client: TestClient
) -> None:
    html = page(client, "/")
    names = re.findall(r'/streams/([a-z0-9-]+)"', html)
    assert sorted(names) == sorted(shop.declarations.streams)
    assert re.findall(r'rowgroup">(\w+) ', html) == sorted(re.findall(r'rowgroup">(\w+) ', html))
    views = [name for name in names if name in ("page-paths", "departed-users", "enriched-events")]
    assert views == ["page-paths", "departed-users", "enriched-events"]


def test_a_line_says_state_lag_rate_shares_and_the_next_audit(shop: ShownShop, client: TestClient) -> None:
    shop.say = replace(shop.say, samples={})
    shop.say_of(STREAM, lag=1_234, records_per_second=17.25, records_total=1_000, late_records=20, dead_letters=5)
    said = row(page(client, "/"), STREAM)
    assert "running 4 s ago" in said
    assert "1,234 17.2 2.00 % 0.50 %" in said
    assert "not audited yet 2026-11-25 15:46" in said


def test_the_rate_is_of_the_last_five_minutes_where_there_is_a_history_and_a_lookup_that_finds_no_row_is_said(
    shop: ShownShop, client: TestClient
) -> None:
    (first, began), *_, (last, ended) = [
        (one.status.records_total, one.status.heartbeat_ms) for one in shop.say.samples[STREAM][-11:]
    ]
    lookup = {"lookup": "left lookup in airlines", "lookup_records": 13_092, "lookup_misses": 13_092}
    shop.say_of(STREAM, records_per_second=99_999.0, **lookup)
    said = row(page(client, "/"), STREAM)
    assert f" {(last - first) / (ended - began) * 1_000:.1f} " in said
    assert "13,092 of 13,092 records find no row in the left lookup in airlines" in said
    assert "without a row in the left lookup in airlines 100.00 %" in text_of(page(client, f"/streams/{STREAM}"))


def test_after_a_reset_the_pages_show_nothing_that_the_former_version_had_found(
    shop: ShownShop, client: TestClient
) -> None:
    shop.certify(STREAM, 2, outcome="violation", differences_found=3, findings={"open_found": 3})
    shop.try_expectations(STREAM, "20260001T010000Z-abcdef")
    shop.say_of(STREAM, stream_version=1)
    assert "violation, 3 open findings" in text_of(page(client, f"/streams/{STREAM}"))
    assert STREAM in text_of(page(client, "/data-docs"))

    shop.say_of(STREAM, stream_version=2, state="stopped")
    said = row(page(client, "/"), STREAM)
    assert "of former versions" in said and not re.search(r"\b3\b", said), said
    said = text_of(page(client, f"/streams/{STREAM}"))
    assert "Version 2 of the stream is not audited yet" in said
    assert "The newest:" not in said and "What Great Expectations found" not in said.partition("Audits")[2]
    assert STREAM not in text_of(page(client, "/data-docs"))

    shop.certify(STREAM, 3, declaration={"stream_version": 2})
    assert "The newest: 20260002T010000Z-abcdef , match" in text_of(page(client, f"/streams/{STREAM}"))


def test_what_runs_without_a_declaration_is_listed_with_what_to_do(shop: ShownShop, client: TestClient) -> None:
    """A stream that was renamed ran on for ever, and its open findings left the page."""
    assert "Without a declaration" not in page(client, "/")
    running = replace(shop.say.statuses[STREAM], stream="old-revenue")
    ended = replace(running, stream="ended", state="stopped")
    killed = replace(running, stream="killed", heartbeat_ms=running.heartbeat_ms - 7_200_000)
    group = replace(running, stream="group.orders")
    others = {one.stream: one for one in (running, ended, killed, group)}
    shop.say = replace(shop.say, statuses={**shop.say.statuses, **others})
    shop.certify("once-audited", 2, outcome="violation", differences_found=3, findings={"open_found": 3})
    shop.certify("ended", 1)
    _, _, html = page(client, "/").partition("<h2>Without a declaration</h2>")
    rows = [text_of(f"<tr{one}") for one in html.split("<tr")[2:]]
    assert [said.split()[0] for said in rows] == ["killed", "old-revenue", "once-audited"]
    assert "silent for 2 h" in rows[0]
    assert "running without a declaration" in rows[1] and "recount retire old-revenue" in rows[1]
    assert "none 3 as of" in rows[2] and "recount findings --stream once-audited" in rows[2]
    assert "once-audited/20260001T010000Z-abcdef.html" in html


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("text=revenue", {"revenue-by-region", "product-revenue"}),
        ("text=REVENUE-BY", {"revenue-by-region"}),
        ("state=stopped", {"departed-users"}),
        ("state=silent", {"order-balances"}),
        ("state=attention", {"page-paths", "matched-orders"}),
        ("text=revenue&state=stopped", set()),
    ],
)
def test_the_filter_shows_what_was_asked_for(client: TestClient, asked: str, shown: set[str]) -> None:
    html = page(client, f"/?{asked}")
    assert set(re.findall(r'/streams/([a-z0-9-]+)"', html)) == shown
    assert ("No stream has such a name and state." in html) == (not shown)


def test_each_audit_is_a_square_that_leads_to_its_certificate(shop: ShownShop, client: TestClient) -> None:
    shop.certify(STREAM, 100, outcome="violation", differences_found=3, findings={"open_found": 3})
    on_overview = [one for one in loaded(page(client, "/")).places if "/reports/" in one]
    on_page = [one for one in loaded(page(client, f"/streams/{STREAM}")).places if "/reports/" in one]
    assert len(on_overview) == 14
    assert len(set(on_page)) == 100
    assert on_page[:100] == sorted(on_page[:100])
    assert client.get(on_page[0]).text == f"<h1>{STREAM} match</h1>"
    html = page(client, f"/streams/{STREAM}")
    assert html.count('class="night violation" href') == 1
    assert "violation, 3 open findings" in html
    assert "3" in row(page(client, "/"), STREAM).split()


def test_a_certificate_that_cannot_be_read_is_a_square_of_its_own(shop: ShownShop, client: TestClient) -> None:
    shop.certify(STREAM, 3)
    assert "EU 1970-01-01 00:00 to 00:05 orders 5 → 6 1" in text_of(page(client, f"/streams/{STREAM}")), "a miss"
    folder = shop.root / "reports" / "certificates" / STREAM
    for number, text in enumerate(("{", "[]", '{"outcome": "match"}', '{"outcome": 5}', "[" * 9_999)):
        (folder / f"{number}.json").write_text(text)
    html = page(client, f"/streams/{STREAM}")
    assert html.count('class="night unreadable" href') == 5
    assert html.count('class="night ok" href') == 3


@pytest.fixture
def written(shop: ShownShop) -> WrittenStream:
    """Two batches of twelve orders, a minute apart."""
    stream = WrittenStream(shop.declarations.topologies["product-revenue"], Path(shop.settings.data))
    batches = [
        [(f"o{batch}-{n}", batch * 60, {"order_id": "o", "product": "tea", "amount": "1.00"}) for n in range(12)]
        for batch in range(2)
    ]
    stream.write([as_arrivals("orders", *orders) for orders in batches])
    return stream


def test_partitions_rates_and_state_come_from_the_tables(
    shop: ShownShop, client: TestClient, written: WrittenStream
) -> None:
    parts = {
        ("orders", 0): PartitionLag(committed=24, read=24, decided=28, end=30),
        ("orders", 1): PartitionLag(committed=0, read=0, decided=0, end=0),
    }
    shop.say = replace(shop.say, lags={"product-revenue": StreamLag(at_ms=NOW_MS, partitions=parts)})
    said = text_of(page(client, "/streams/product-revenue"))
    assert "records behind 6 " in said
    assert "orders-0 24 30 6 2 not readable: an open transaction 1970-01-01 00:01 no" in said
    assert "Rows a second in the batches after 2023-11-14 22:13 and up to 2023-11-14 22:14 UTC" in said
    assert "0.2/s" in said  # twelve records in a minute
    assert "a partition has not had a record yet" in said
    assert "source orders" in said


def test_tables_that_are_damaged_are_a_sentence(shop: ShownShop, client: TestClient, written: WrittenStream) -> None:
    log = Path(Tables(shop.settings.data).state("product-revenue")) / "_delta_log"
    for file in log.glob("*.json"):
        file.write_text("no JSON")
    said = text_of(page(client, "/streams/product-revenue"))
    assert "the tables of product-revenue could not be read" in said
    assert "They are in the tables, which could not be read: see above." in said


def test_where_nothing_is_there_yet_each_part_is_a_sentence(shop: ShownShop, client: TestClient) -> None:
    shop.say, shop.runs.known = BrokersSay(), {}
    said = text_of(page(client, f"/streams/{STREAM}"))
    for sentence in (
        "No driver has spoken yet: the DAG stream__revenue-by-region starts one",
        "No driver has spoken during the last hour.",
        "Not audited yet. Next audit: not known to Airflow.",
        "No batch is committed yet, so nothing was read.",
        "There is no log of this driver on this machine.",
        "stream_control is not known to Airflow",
    ):
        assert sentence in said
    assert "never started" in text_of(page(client, "/"))
    assert "No audit has tried the expectations yet" in text_of(page(client, "/data-docs"))


@pytest.mark.timeout(60)
def test_brokers_that_are_down_are_named_and_the_page_comes_all_the_same(shop: ShownShop, client: TestClient) -> None:
    watch = BrokerWatch(Connection(bootstrap_servers="127.0.0.1:1"), shop.declarations.read_topics, patience_s=0.2)
    pages.app.dependency_overrides[pages.brokers] = lambda: watch
    for path in ("/", f"/streams/{STREAM}"):
        html = page(client, path)
        assert "the brokers have not answered within 0.2 s" in html
        assert 'badge silent">never started' not in html
        assert 'badge silent">not known' in html
    assert "The brokers have not said how the stream is: see above." in page(client, f"/streams/{STREAM}")


def test_a_page_that_there_is_not_says_so_and_so_do_settings_that_are_wrong(
    shop: ShownShop, client: TestClient
) -> None:
    assert "There is no such stream." in page(client, "/streams/unknown", status=404)
    assert "Not Found" in page(client, "/nowhere", status=404)
    assert page(client, f"/expectations/{STREAM}/..%2f..%2fsecret", status=404)
    assert page(client, "/static/..%2frendering.py", status=404)
    # Great Expectations' own pages are not served
    site = shop.root / "reports" / "gx" / "uncommitted" / "data_docs" / "local_site" / "index.html"
    site.parent.mkdir(parents=True)
    site.write_text('<script src="https://elsewhere.example/jquery.js"></script>')
    assert "elsewhere.example" not in page(client, f"/reports/{site.relative_to(shop.root / 'reports')}", status=404)
    pages.app.dependency_overrides[pages.settings_here] = lambda: Settings.from_environment({"RECOUNT_NONSENSE": "1"})
    assert "RECOUNT_NONSENSE is unknown" in page(client, "/", status=503)


def test_hostile_texts_of_all_sources_are_text(shop: ShownShop, client: TestClient) -> None:
    miss = {"key": HOSTILE, "window_start": 2**62, "window_end": 2**62, "published": HOSTILE, "complete": HOSTILE}
    shop.certify(
        STREAM, 2, warnings=[HOSTILE], grace_misses=[{**miss, "late_records": 1, "late": [HOSTILE], "explained": True}]
    )
    folder = shop.root / "reports" / "certificates" / STREAM
    (folder / 'x" onclick=alert(1) <b>.json').write_text("{}")
    shop.try_expectations(STREAM, "night<script>", text=HOSTILE)
    shop.say_of(STREAM, error=HOSTILE, host=HOSTILE, state="failed")
    shop.say = replace(shop.say, problems=[HOSTILE])
    for kind in ("grace", "lens"):
        (shop.root / "reports" / kind).mkdir()
        document = {"said": [HOSTILE], "columns": [HOSTILE], "rows": [[HOSTILE]]}
        (shop.root / "reports" / kind / f"{STREAM}.json").write_text(json.dumps(document))
    log = shop.root / "logs" / "streams" / "orders.log"
    log.parent.mkdir(parents=True)
    log.write_text(HOSTILE)
    for path in (
        "/",
        f"/streams/{STREAM}",
        "/data-docs",
        f"/expectations/{STREAM}/night%3Cscript%3E",
        f"/?text={HOSTILE}",
    ):
        html = page(client, path)
        found = loaded(html)
        assert "&lt;script&gt;" in html
        assert found.tags.isdisjoint(
            {"script", "img", "style", "iframe", "object", "b"} - ({"b"} if "<b class" in html else set())
        )
        assert found.handlers == []


def test_no_page_loads_or_sends_anything_elsewhere_and_none_runs_a_script(
    shop: ShownShop, client: TestClient, written: WrittenStream
) -> None:
    shop.certify(STREAM, 100)
    shop.try_expectations(STREAM, "night-1")
    for path in (
        "/",
        f"/streams/{STREAM}",
        "/streams/product-revenue",
        "/data-docs",
        f"/expectations/{STREAM}/night-1",
    ):
        answer = client.get(f"{PAGES}{path}")
        found = loaded(answer.text)
        assert found.places
        assert all(unquote(place).startswith((f"{PAGES}/", "#")) for place in found.places), found.places
        assert found.tags.isdisjoint({"script", "style"})
        assert found.handlers == []
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy and "unsafe" not in policy and "form-action 'self'" in policy


PAGE = f"{PAGES}/streams/{STREAM}"
MALLORY = SimpleAuthManagerUser(username="mallory", role="admin")


def token(client: TestClient) -> str:
    """That of the forms of the page."""
    [found] = set(re.findall(r'name="token" value="([^"]+)"', client.get(PAGE).text))
    return found


@pytest.mark.parametrize(
    ("order", "dag", "conf"),
    [
        ("start", "stream_control", {"stream": STREAM, "order": "start"}),
        ("stop", "stream_control", {"stream": STREAM, "order": "stop"}),
        ("audit", f"audit__{STREAM}", {}),
        ("backfill", f"backfill__{STREAM}", {}),
    ],
)
def test_a_button_starts_its_dag_in_the_name_of_the_user(
    shop: ShownShop, client: TestClient, order: str, dag: str, conf: dict[str, str]
) -> None:
    answer = client.post(f"{PAGE}/{order}", data={"token": token(client)})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PAGE}?started={order}")
    assert shop.runs.started == [(dag, conf, "alice")]
    assert f"{dag} was started" in client.get(answer.headers["location"]).text
    assert "was started" not in client.get(f"{PAGE}?started=<script>").text


@pytest.mark.parametrize("given", [{}, {"token": ""}, {"token": "made.up.token"}, {"token": token_for(MALLORY)}])
def test_an_order_without_the_token_of_the_page_is_refused(
    shop: ShownShop, client: TestClient, given: dict[str, str]
) -> None:
    answer = client.post(f"{PAGE}/stop", data=given)
    assert answer.status_code == 403
    assert "does not come from the page of the stream" in answer.text
    assert shop.runs.started == []


def test_a_user_who_may_not_start_a_dag_sees_why_and_is_refused(shop: ShownShop, client: TestClient) -> None:
    shop.runs.refused = {(f"backfill__{STREAM}", "alice")}
    assert f"you may not start runs of backfill__{STREAM}" in client.get(PAGE).text
    assert client.post(f"{PAGE}/backfill", data={"token": token(client)}).status_code == 403
    assert client.post(f"{PAGE}/audit", data={"token": token(client)}).status_code == 303
    assert [dag for dag, _, _ in shop.runs.started] == [f"audit__{STREAM}"]


@pytest.mark.parametrize(
    ("paused", "order"), [("stream_control", "stop"), (f"stream__{STREAM}", "start"), (f"audit__{STREAM}", "audit")]
)
def test_a_paused_dag_is_not_started_for_its_run_would_wait_for_ever(
    shop: ShownShop, client: TestClient, paused: str, order: str
) -> None:
    shop.runs.known[paused] = DagState(paused=True, next_ms=None)
    assert f"{paused} is paused in Airflow" in client.get(PAGE).text
    assert (f"{paused} is paused" in row(page(client, "/"), STREAM)) is (order == "audit"), (
        "where the next one would be"
    )
    answer = client.post(f"{PAGE}/{order}", data={"token": token(client)})
    assert answer.status_code == 409
    assert shop.runs.started == []


def test_an_archive_has_no_audit_and_no_stream_an_order_that_there_is_not(client: TestClient) -> None:
    given = {"token": token(client)}
    assert client.post(f"{PAGES}/streams/archive-orders/audit", data=given).status_code == 404
    assert client.post(f"{PAGES}/streams/unknown/stop", data=given).status_code == 404
    assert client.post(f"{PAGE}/drop", data=given).status_code == 422


STATUS = a_status(stream=STREAM, state="failed", error="disk full")


def shown(shop: ShownShop, client: TestClient, status: StreamStatus) -> str:
    """The overview and the page of the stream, when that is its driver's last word."""
    shop.say = replace(shop.say, statuses={**shop.say.statuses, STREAM: status})
    return "".join(page(client, path) for path in ("/", f"/streams/{STREAM}"))

"""The pages in Chromium, with 39 streams and 100 certificates: two themes and widths, the keyboard alone, no script."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Mount, Route
from tests.shown_shop import ShownShop, shown_shop
from tests.unit.serve.written_streams import listened

from recount.airflow.links import PAGES

STREAM = "revenue-by-region"
FRAME = f"""<html style='color-scheme: THEME'><link rel=icon href=data:,>
<iframe src='{PAGES}/' sandbox='allow-same-origin'></iframe></html>"""
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
GROUNDS = {"light": "rgb(247, 248, 250)", "dark": "rgb(18, 22, 30)"}
_CONTRAST = """() => {
  const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const bare = (s) => s.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = bare(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
  };
  const found = [];
  for (const e of document.querySelectorAll('main *, header *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest('svg') || e.disabled || !e.getClientRects().length) continue;
    const [a, b] = [light(bare(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(e.tagName + ' ' + e.className + ' ' + e.textContent.trim());
  }
  return found;
}"""
"""The texts whose contrast with the ground is below 4.5 to 1."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> ShownShop:
    """Certificates of 100 nights of one stream and of ten of all others."""
    shop = shown_shop(tmp_path_factory.mktemp("pages"))
    for name in shop.declarations.topologies:
        shop.certify(name, 10)
    shop.certify(STREAM, 100, outcome="violation", differences_found=3, findings={"open_found": 3})
    shop.try_expectations(STREAM, "night-1")
    return shop


@pytest.fixture(scope="module")
def address(shop: ShownShop) -> Iterator[str]:
    with shop.served() as app:
        frames = [Route(f"/{theme}", _frame(theme)) for theme in THEMES]
        with listened(Starlette(routes=[*frames, Mount("/", app)])) as (host, port):
            yield f"http://{host}:{port}"


def _frame(theme: str) -> object:
    """A page of another theme than the system's around the pages, as Airflow's is once its theme is chosen."""
    return lambda _: HTMLResponse(FRAME.replace("THEME", theme))


@contextmanager
def opened(browser: Browser, width: int = 1280, theme: Theme | Literal["null"] = "light") -> Iterator[Page]:
    """A page without JavaScript that must not ask for anything at another address, nor break its policy."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, java_script_enabled=False
    )
    page = context.new_page()
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    yield page
    own = page.url.split("/", 3)[:3]
    assert [url for url in asked if url.split("/", 3)[:3] != own] == []
    assert complaints == []
    context.close()


def ground(body: Locator) -> str:
    color: str = body.evaluate("one => getComputedStyle(one).backgroundColor")
    return color


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("path", ["/", f"/streams/{STREAM}", "/data-docs", f"/expectations/{STREAM}/night-1"])
def test_a_page_fits_its_width_and_can_be_read_in_both_themes(
    browser: Browser, address: str, path: str, theme: Theme, width: int
) -> None:
    with opened(browser, width, theme) as page:
        page.goto(f"{address}{PAGES}{path}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        streams = page.locator(".scroll:has(.streams)")
        assert streams.evaluate_all("all => all.filter(one => one.scrollWidth > one.clientWidth).length") == 0
        assert page.evaluate(_CONTRAST) == []
        assert ground(page.locator("body")) == GROUNDS[theme]


@pytest.mark.parametrize("theme", THEMES)
def test_inside_a_page_of_either_theme_the_pages_take_that(browser: Browser, address: str, theme: Theme) -> None:
    with opened(browser, theme="null") as page:
        page.goto(f"{address}/{theme}")
        inside = page.frame_locator("iframe").locator("body")
        expect(inside).to_contain_text(STREAM)
        assert ground(inside) == GROUNDS[theme]


def test_the_keyboard_alone_finds_a_stream_and_starts_its_audit(
    browser: Browser, shop: ShownShop, address: str
) -> None:
    with opened(browser) as page:
        page.goto(f"{address}{PAGES}/")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(page.get_by_role("searchbox", name="Name")).to_be_focused()
        page.keyboard.type(STREAM)
        page.keyboard.press("Enter")
        page.wait_for_url("**text=revenue-by-region**")
        expect(page.locator("tbody th[scope=row]")).to_have_count(1)
        _tab_to(page, STREAM)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text(STREAM)
        _tab_to(page, "Audit")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_contain_text(f"audit__{STREAM} was started")
    assert shop.runs.started == [(f"audit__{STREAM}", {}, "alice")]


def _tab_to(page: Page, text: str) -> None:
    """Press Tab until what has the focus says ``text``; on the way everything that has it shows so."""
    for _ in range(60):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        assert focused.evaluate("one => getComputedStyle(one).outlineStyle") != "none"
        if focused.evaluate("one => one.textContent.trim()") == text:
            return
    raise AssertionError(f"nothing that says {text!r} takes the focus")


def test_the_graph_and_the_charts_are_drawn(browser: Browser, address: str) -> None:
    with opened(browser) as page:
        page.goto(f"{address}{PAGES}/streams/{STREAM}")
        graph = page.get_by_role("img", name=f"The operators of {STREAM}")
        for name in (
            graph,
            *(page.get_by_role("img", name=name) for name in ("records a second", "duration of batches")),
        ):
            box = name.bounding_box()
            assert box is not None and box["width"] > 150 and box["height"] > 100
        stroke = "one => getComputedStyle(one).stroke"
        assert page.locator(".chart .line.reactive").first.evaluate(stroke) == "rgb(34, 87, 196)"

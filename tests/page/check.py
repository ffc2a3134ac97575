"""The page in a real browser: what it shows, how soon, by keyboard, in which light. Makes screenshots."""

import json
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

from playwright.sync_api import expect, sync_playwright

from world import ask, until, world

SHOTS = Path(sys.argv[1])
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP elsewhere.example 127.0.0.1",
]
# Bound of every wait for a fact. What a change really took is measured and printed, not asserted:
# a machine that does something else as well is slow, not wrong.
SOON_MS = 15_000
TOKEN = "only-for-this-test-0123"

complaints = []
took_ms = {}


@contextmanager
def measured(what):
    begun = time.monotonic()
    yield
    took_ms[what] = round(1000 * (time.monotonic() - begun))


def opened(browser, url, light="light", width=1440, height=900):
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=light)
    page = context.new_page()
    # That /readyz says "not yet" is an answer, which a browser calls an error.
    is_wrong = lambda line: line.type == "error" and "503" not in line.text
    page.on("console", lambda line: is_wrong(line) and complaints.append(line.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url, wait_until="load")
    return page


def close(browser):
    """No page is left to ask a program that has gone."""
    for context in list(browser.contexts):
        context.close()


def live(page):
    page.wait_for_selector("body[data-stream=open]", timeout=SOON_MS)
    page.wait_for_selector("#rows tr", timeout=SOON_MS)


def shot(page, name):
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")


def functions_are_right(browser, url):
    """What needs no page: events out of any chunks, spans, filters, pieces of a strip."""
    page = opened(browser, url)
    told = page.evaluate(
        """async () => {
        const { reader } = await import("/page/sse.js");
        const { span, hasWords, blocks, hitRates, envelopeText } = await import("/page/text.js");
        const { pieces } = await import("/page/timeline.js");
        const { empty, takeEvent, takeReplicas } = await import("/page/state.js");
        const text = ": hi\\n\\nevent: envelope\\ndata: {\\"a\\":1}\\n\\ndata: x\\r\\n\\r\\n";
        const cut = [];
        for (let size = 1; size < text.length; size += 1) {
          const read = reader();
          const events = [];
          for (let at = 0; at < text.length; at += size) events.push(...read(text.slice(at, at + size)));
          cut.push(JSON.stringify(events));
        }
        const state = empty();
        const standing = (trust, since) => ({ key: "k", trust, reason: "r", since, epoch: 1, next_seq: 1 });
        takeReplicas(state, [{ ...standing("exact", 5), changes: [{ at: 5, trust: "exact", reason: "r", epoch: 1 }] }]);
        takeEvent(state, "standing", standing("exact", 5), 6);
        takeEvent(state, "standing", standing("none", 7), 7);
        takeReplicas(state, [standing("exact", 5)]);
        for (let seq = 0; seq < 1000; seq += 1) takeEvent(state, "envelope", { seq }, 8);
        return {
          cut: [...new Set(cut)],
          spans: [span(950), span(61_000), span(7_300_000), span(undefined), span(-5)],
          words: [hasWords("Stored 2 on device", "device stored"), hasWords("stored", "removed")],
          blocks: [blocks({ host: 3, device: 2 }), blocks({})],
          rates: hitRates({ input: 10, cached: 5, routed_input: 4, routed_cached: 3, routed_predicted: 4 }),
          line: envelopeText({ events: [{ type: "stored", tier: "device", blocks: [1], tokens: { count: 16 } }, { type: "stored", tier: "device", blocks: [1, 2], tokens: { count: 32 } }, { type: "cleared" }] }),
          pieces: pieces([{ at: 0 }, { at: 500 }, { at: 501 }], 1000, 1000, 100).map((it) => [it.x, it.width]),
          kept: [state.replicas.get("k").trust, state.replicas.get("k").changes.length, state.envelopes.length, state.seen],
        };
      }"""
    )
    assert told == {
        "cut": ['[{"name":"envelope","data":"{\\"a\\":1}"},{"name":"","data":"x"}]'],
        "spans": ["0.9 s", "61 s", "2 h", "–", "0 s"],
        "words": [True, False],
        "blocks": ["2 · host 3", "0"],
        "rates": {"predicted": "100 %", "observed": "75 %", "engine": "50 %"},
        "line": "stored 3 on device (48 tokens), cleared",
        "pieces": [[0, 50], [50, 1.5], [50.1, 49.9]],
        "kept": ["none", 2, 300, 1000],
    }, told


def changes_are_seen_soon(browser, url, world):
    page = opened(browser, url)
    live(page)
    row = page.locator("#rows tr")
    expect(row).to_have_count(1)
    world.fault(fault="burst", count=3)
    world.all_exact(1)
    expect(row.locator(".badge")).to_have_text("exact", timeout=SOON_MS)
    # Chosen by keyboard alone.
    row.focus()
    page.keyboard.press("ArrowDown")
    expect(row).to_have_attribute("aria-selected", "true")
    expect(page.locator("#facts")).to_contain_text("contiguous", timeout=SOON_MS)
    # A batch: cursor, blocks and the envelope.
    next_seq = world.moves_on()
    with measured("a batch's cursor"):
        expect(row.locator(".c-seq")).to_have_text(str(next_seq), timeout=SOON_MS)
    expect(page.locator("#lines li .seq").first).to_have_text(str(next_seq - 1), timeout=SOON_MS)
    world.moves_on()
    blocks = world.replicas()[0]["blocks"]["device"]
    with measured("blocks"):
        expect(row.locator(".c-blocks")).to_have_text(str(blocks), timeout=SOON_MS)
    # Batches that are nowhere: a lower bound, with the way there in the changes.
    world.fault(fault="drop", count=1)
    world.fault(fault="hole", count=1)
    world.fault(fault="burst", count=4)
    until("less trust", lambda: world.replicas()[0]["trust"] == "lower_bound")
    with measured("a lower trust"):
        expect(row.locator(".badge")).to_have_text("lower_bound", timeout=SOON_MS)
    expect(page.locator("#changes")).to_contain_text("history_lost", timeout=SOON_MS)
    world.fault(fault="restart")
    for _ in range(20):
        world.fault(fault="burst", count=1)
    expect(page.locator("#changes")).to_contain_text("epoch 1", timeout=SOON_MS)
    expect(row.locator(".badge")).to_have_text("exact", timeout=SOON_MS)
    envelopes_are_filtered_and_paused(page, world)
    shot(page, "one-replica")
    # Whoever comes later sees what was before.
    later = opened(browser, url, "dark")
    live(later)
    later.locator("#rows tr").click()
    expect(later.locator("#changes")).to_contain_text("history_lost", timeout=SOON_MS)
    shot(later, "one-replica-dark")


def envelopes_are_filtered_and_paused(page, world):
    lines = page.locator("#lines li")
    page.locator("#envelope-filter").fill("no such words")
    expect(lines).to_have_count(0, timeout=SOON_MS)
    page.locator("#envelope-filter").fill("stored device")
    expect(lines.first).to_contain_text("stored", timeout=SOON_MS)
    lines.first.click()
    full = page.locator("#envelope")
    expect(full).to_contain_text('"events"')
    envelope = json.loads(full.text_content())
    stored = [event for event in envelope["events"] if event["type"] == "stored"]
    assert all(list(event["tokens"]) == ["count"] for event in stored), "token ids are shown"
    expect(page.locator("#pause")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#envelopes-note")).to_contain_text("paused, 0 since", timeout=SOON_MS)
    world.moves_on()
    expect(page.locator("#envelopes-note")).not_to_contain_text("paused, 0", timeout=SOON_MS)
    page.locator("h1").click()
    page.keyboard.press("p")
    expect(page.locator("#pause")).to_have_attribute("aria-pressed", "false")


def hit_rates_are_seen(browser, url, world):
    page = opened(browser, url)
    live(page)
    replica = world.replicas()[0]["replica"]
    report = {"input_tokens": 100, "cached_tokens": 60, "predicted_tokens": 80}
    ask(f"{world.url}/v1/feedback", {**report, **replica})
    with measured("hit rates"):
        expect(page.locator("#rows .c-hits")).to_have_text("80 % / 60 %", timeout=SOON_MS)


def orders_ask_twice(browser, url, world):
    page = opened(browser, url)
    live(page)
    page.locator("#rows tr").click()
    before = page.locator("#changes li").count()
    page.locator("#resync").click()
    expect(page.locator("#order-dialog")).to_be_visible()
    expect(page.locator("#order-replica")).to_have_text(world.replicas()[0]["key"])
    shot(page, "resync")
    page.keyboard.press("Escape")
    expect(page.locator("#order-dialog")).to_be_hidden()
    assert page.locator("#changes li").count() == before, "nothing was confirmed"
    page.locator("#resync").click()
    page.locator("#order-confirm").click()
    expect(page.locator("#order-status")).to_contain_text("reached", timeout=SOON_MS)
    expect(page.locator("#changes li")).not_to_have_count(before, timeout=SOON_MS)


class Elsewhere(BaseHTTPRequestHandler):
    """A page that is none of ours."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, *_):
        pass


def pages_from_elsewhere_change_and_read_nothing(browser, world):
    asked = world.replicas()[0]["key"]
    counted = lambda reason: world.metric(f'kvbridge_http_foreign_total{{reason="{reason}"}}')
    resyncs = lambda: world.metric('kvbridge_deliberate_resyncs_total{trigger="operator"}')
    before = resyncs()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_context().new_page()
    page.goto(f"http://elsewhere.example:{server.server_port}/")
    order = json.dumps({"replica": asked})
    page.evaluate(
        "([url, body]) => fetch(url, {method: 'POST', mode: 'no-cors', body}).then(() => 0)",
        [f"{world.url}/v1/resync", order],
    )
    assert counted("cross_site") == 1
    # A form, too: what it sends is another type of text, and an answer that would be shown.
    with page.expect_navigation():
        page.evaluate(
            """url => {
            const form = document.createElement("form");
            Object.assign(form, { method: "post", action: url });
            document.body.append(form);
            form.submit();
        }""",
            f"{world.url}/v1/replicas/{asked}/resync",
        )
    assert "cross_site" in page.content()
    assert counted("cross_site") == 2 and resyncs() == before
    # A name that leads to the loopback makes the same origin of the two.
    answer = page.goto(f"http://elsewhere.example:{urlsplit(world.url).port}/v1/replicas")
    assert (answer.status, "unknown_host" in page.content()) == (421, True)
    assert asked not in page.content() and counted("unknown_host") >= 1
    server.shutdown()


def hundred_are_readable(browser, url, world):
    for width, light in [(1440, "light"), (1440, "dark"), (1920, "light"), (360, "light"), (360, "dark")]:
        page = opened(browser, url, light, width, 900 if width > 400 else 780)
        live(page)
        rows = page.locator("#rows tr")
        expect(rows).to_have_count(100)
        expect(page.locator("#trusts")).to_contain_text("none 1", timeout=SOON_MS)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{wide} px of content in {width}"
        page.keyboard.press("/")
        page.keyboard.type("10.0.3.")
        expect(rows).to_have_count(8, timeout=SOON_MS)
        page.locator("#replica-filter").fill("")
        expect(rows).to_have_count(100, timeout=SOON_MS)
        page.locator("#trusts [data-trust=exact]").click()
        expect(rows).to_have_count(2, timeout=SOON_MS)
        page.locator("#trusts [data-trust=exact]").click()
        rows.first.click()
        page.keyboard.press("End")
        expect(rows.last).to_be_focused()
        page.keyboard.press("Home")
        nothing_jumps(page, world)
        shot(page, f"hundred-{width}-{light}")
        if width < 400:
            page.screenshot(path=SHOTS / f"hundred-{width}-{light}-whole.png", full_page=True)
        page.context.close()


def nothing_jumps(page, world):
    """Where areas and rows are, before and after things happened."""
    places = """() => [...document.querySelectorAll("section, #rows tr")]
        .map((it) => it.getBoundingClientRect()).map((it) => [it.x, it.y, it.width, it.height])"""
    before = page.evaluate(places)
    last = page.locator("#lines li").first
    number = last.get_attribute("data-number") if last.count() else "0"
    world.fault(rank=5, fault="burst", count=2)
    page.wait_for_function(
        "before => Number(document.querySelector('#lines li')?.dataset.number ?? 0) > before",
        arg=int(number), timeout=SOON_MS,
    )
    assert page.evaluate(places) == before, "something moved"


def a_token_is_asked_for(browser):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokens.toml"
        file.write_text(
            f'[[tokens]]\ntoken = "{TOKEN}"\nscopes = ["read"]\n'
        )
        with world(1, {"KVBRIDGE__HTTP__TOKENS_FILE": str(file)}) as guarded:
            guarded.fault(fault="burst", count=3)
            guarded.all_exact(1, TOKEN)
            page = opened(browser, guarded.url)
            expect(page.locator("#token-dialog")).to_be_visible(timeout=SOON_MS)
            shot(page, "token")
            page.locator("#token").fill(TOKEN)
            page.keyboard.press("Enter")
            live(page)
            assert TOKEN not in page.content() and TOKEN not in page.url
            kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
            assert TOKEN not in kept
            # A token that may only read may not have anything done.
            page.locator("#rows tr").click()
            page.locator("#resync").click()
            page.locator("#order-confirm").click()
            expect(page.locator("#order-status")).to_contain_text("scope_missing", timeout=SOON_MS)


def main():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ["CHROMIUM"], headless=True, args=FLAGS
        )
        with world(1) as one:
            functions_are_right(browser, one.url)
            changes_are_seen_soon(browser, one.url, one)
            hit_rates_are_seen(browser, one.url, one)
            orders_ask_twice(browser, one.url, one)
            pages_from_elsewhere_change_and_read_nothing(browser, one)
            close(browser)
        with world(100) as hundred:
            hundred.fault(fault="burst", count=12)
            hundred.all_exact(100)
            hundred.fault(rank=3, fault="poison", count=1)
            hundred.fault(rank=3, fault="burst", count=3)
            hundred.fault(rank=7, fault="unknown_tag")
            hundred.fault(rank=7, fault="burst", count=3)
            hundred_are_readable(browser, hundred.url, hundred)
            close(browser)
        assert not complaints, complaints[:10]
        a_token_is_asked_for(browser)
        browser.close()
    print("page: from the fact to the sight of it, ms:", took_ms)
    print(f"page: all as it should be; screenshots in {SHOTS}")


main()

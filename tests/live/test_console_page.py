"""The console's page in a real Chromium, on a live cluster of six nodes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.live.chromium import Tab, chromium, tab
from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster
from tests.live.console import Console
from tests.polling import eventually
from tests.test_console.run_folders import write_run

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

#: Each page, and a text that shows that its content came.
PAGES = {
    "/": "controller 1",
    "/brokers": "127.0.0.1:",
    "/topics": "orders",
    "/topic?name=orders": "103",
    "/replication?name=orders": "epoch 0",
    "/replication": "observer 101",
    "/messages?topic=orders&partition=0": "customer-",
    "/groups": "billing",
    "/group?name=billing": "orders-",
    "/configs?kind=topic&name=orders": "retention.ms",
    "/metadata": "brokers/",
    "/metadata?path=/topics/orders/0&from=0&to=20": "leader_epoch",
    "/runs": "Leaders die",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # A paused broker stays for as long as the page takes to show it.
    given = ["broker.session.timeout.ms=5000"]
    with Cluster(tmp_path_factory.mktemp("cluster"), settings=given) as cluster:
        Topics(cluster.bootstrap).create("orders", partitions=6)
        write(cluster)
        yield cluster


def write(cluster: Cluster) -> None:
    producer = Producer(settings(cluster.bootstrap, acks="all"))
    for number in range(200):
        value = json.dumps({"order": number, "text": "<b>no markup</b>"})
        producer.produce("orders", value, key=f"customer-{number % 3}", partition=number % 2)
    assert producer.flush(60) == 0
    consumer = Consumer(
        settings(cluster.bootstrap, group_id="billing", auto_offset_reset="earliest")
    )
    consumer.subscribe(["orders"])
    message = eventually(lambda: consumer.poll(0.2), "a message")
    consumer.commit(message, asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    folder = tmp_path_factory.mktemp("console")
    write_run(folder / "runs" / "leader-kill")
    lab = ["--lab", str(cluster.data_dir), "--allow-changes"]
    with Console(folder, *lab, "--runs", str(folder / "runs")) as console:
        yield console


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def desk(browser: Any, console: Console) -> Iterator[Tab]:
    with tab(browser, console.address) as opened:
        yield opened


def shows(page: Any, text: str) -> None:
    """Wait until the content has the text."""
    page.locator("#main").get_by_text(text).first.wait_for()


def is_live(page: Any) -> None:
    page.locator("#status", has_text="live").wait_for()


@pytest.mark.parametrize("path", PAGES)
def test_each_page_shows_its_content(desk: Tab, path: str) -> None:
    page = desk.open(path)
    shows(page, PAGES[path])
    is_live(page)
    assert page.locator("h1").count() == 1
    assert page.locator("#banner").is_hidden()


@pytest.mark.parametrize("path", PAGES)
def test_each_page_fits_a_telephone(browser: Any, console: Console, path: str) -> None:
    size = {"width": 390, "height": 844}
    with tab(browser, console.address, viewport=size, has_touch=True) as narrow:
        page = narrow.open(path)
        shows(page, PAGES[path])
        is_live(page)
        wide = page.evaluate(
            "[...document.querySelectorAll('body *')].filter(e => !e.closest('#menu') && "
            "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert wide == []


def test_menu_leads_to_every_page_without_a_reload(desk: Tab) -> None:
    page = desk.page
    is_live(page)
    page.evaluate("window.isTheSame = true")
    for name in ("Brokers", "Topics", "Groups", "Metadata", "Runs", "Quorum"):
        page.locator("#menu").get_by_role("link", name=name, exact=True).click()
        page.locator("h1", has_text=name).wait_for()
        assert page.title().startswith(name)
    page.go_back()
    page.locator("h1", has_text="Runs").wait_for()
    assert page.evaluate("window.isTheSame") is True


def test_token_is_not_left_in_the_address(desk: Tab) -> None:
    is_live(desk.page)
    assert "token" not in desk.page.url
    assert desk.page.evaluate("document.cookie") == ""


def test_page_without_the_token_is_refused(browser: Any, console: Console) -> None:
    with tab(browser, f"{console.origin}/", is_quiet=False) as stranger:
        assert "needs its token" in stranger.page.locator("body").inner_text()


def test_isr_changes_as_it_happens_and_is_announced(cluster: Cluster, desk: Tab) -> None:
    page = desk.open("/topic?name=orders")
    page.locator(".replica.in:text('103')").first.wait_for()
    is_live(page)
    page.evaluate("window.isTheSame = true")
    page.evaluate(
        "window.said = []; new MutationObserver(() => said.push("
        "document.getElementById('announcer').textContent)).observe("
        "document.getElementById('announcer'), {childList: true})"
    )
    cluster.kill("broker-103")
    page.locator("tbody .replica.out[title^='broker 103']").nth(5).wait_for()
    assert page.locator("tbody .chip", has_text="under-replicated").count() == 6
    page.locator(".feed li.bad", has_text="103 left the ISR of").first.wait_for()
    eventually(lambda: "103" in " ".join(page.evaluate("said")), "the change is announced")
    cluster.restart("broker-103")
    page.locator("tbody .replica.in[title^='broker 103']").nth(5).wait_for()
    assert page.evaluate("window.isTheSame") is True


def test_logs_part_and_meet_again_while_a_follower_is_paused_and_the_leader_killed(
    cluster: Cluster, desk: Tab
) -> None:
    Topics(cluster.bootstrap).create("drawn", partitions=1)
    page = desk.open("/replication?name=drawn")
    leads = page.locator("tr", has=page.locator(".chip.leads"))
    leads.wait_for()
    leader = leads.get_attribute("data-key")
    followers = [each for each in ("101", "102", "103") if each != leader]
    for follower in followers:
        cluster.signal(f"broker-{follower}", signal.SIGSTOP)
    producer = Producer(settings(cluster.bootstrap, acks=1))
    for number in range(8):
        producer.produce("drawn", f"record {number}")
    assert producer.flush(60) == 0
    of_leader = page.locator(f"tr[data-key='{leader}']")
    of_leader.locator(".log-open").wait_for()
    page.locator(f"tr[data-key='{followers[0]}'] .log-bar.silent").wait_for()
    for follower in followers:
        cluster.signal(f"broker-{follower}", signal.SIGCONT)
    of_leader.locator(".log-open").wait_for(state="detached")
    cluster.kill(f"broker-{leader}")
    page.locator(f"tr:not([data-key='{leader}']) .chip.leads").wait_for()
    producer.produce("drawn", "of the next epoch")
    assert producer.flush(60) == 0
    after = page.locator(f"tr[data-key='{followers[0]}'] .log-bar")
    eventually(lambda: after.locator(".log-part").count() == 2, "two epochs are drawn")
    said = "high watermark 9, log end 9, epoch 0 from 0, epoch"
    eventually(lambda: said in after.get_attribute("aria-label"), "it is committed")
    boxes = [part.bounding_box() for part in after.locator(".log-part").all()]
    assert boxes[0]["width"] > 4 * boxes[1]["width"], "eight records to one"
    cluster.restart(f"broker-{leader}")
    page.locator(f"tr[data-key='{leader}'] .chip", has_text="in sync").wait_for()


def test_bars_do_not_move_for_those_who_ask_for_none(browser: Any, console: Console) -> None:
    times = {}
    for motion in ("reduce", "no-preference"):
        with tab(browser, console.address, reduced_motion=motion) as opened:
            page = opened.open("/replication?name=orders")
            part = page.locator(".log-part").first
            part.wait_for()
            times[motion] = part.evaluate("e => getComputedStyle(e).transitionDuration")
    assert times["reduce"] == "0s" != times["no-preference"]


def test_records_shown_are_chosen_by_keyboard_and_stay_in_the_address(desk: Tab) -> None:
    page = desk.open("/replication?name=orders&span=20")
    page.locator(".log-scale", has_text="80100").first.wait_for()
    page.locator("select").focus()
    page.keyboard.press("End")
    page.locator(".log-scale", has_text="0100").first.wait_for()
    assert "span=all" in page.url


def test_buttons_kill_and_restart_a_broker(cluster: Cluster, desk: Tab) -> None:
    page = desk.open("/brokers")
    row = page.locator("tr[data-key='102']")
    row.get_by_role("button", name="kill broker-102").click()
    cluster.wait_dead("broker-102")
    row.get_by_role("button", name="restart broker-102").wait_for()
    row.locator(".chip", has_text="fenced").wait_for()
    row.get_by_role("button", name="restart broker-102").click()
    row.locator(".chip", has_text="running").wait_for()
    row.locator(".chip", has_text="active").wait_for()
    assert cluster.nodes()["broker-102"]["is_ready"]


def test_leader_that_is_paused_loses_the_lead_on_the_page(cluster: Cluster, desk: Tab) -> None:
    page = desk.page
    card = page.locator(".card.leads")
    card.wait_for()
    name = f"controller-{card.get_attribute('data-node')}"
    old = page.locator(f".card[data-node='{name[-1]}']")
    old.get_by_role("button", name=f"pause {name}").click()
    old.locator(".chip", has_text="paused").wait_for()
    page.locator(f".card.leads:not([data-node='{name[-1]}'])").wait_for()
    page.locator(".timeline li", has_text="stands candidate").first.wait_for()
    old.get_by_role("button", name=f"resume {name}").click()
    old.locator(".chip", has_text="follower").wait_for()


def test_dead_broker_keeps_its_button_under_a_leader_that_never_heard_it(
    cluster: Cluster, desk: Tab
) -> None:
    page = desk.page
    dead = page.locator("tr[data-key='103']")
    dead.get_by_role("button", name="kill broker-103").click()
    restart = dead.get_by_role("button", name="restart broker-103")
    restart.wait_for()
    old = page.locator(".card.leads").get_attribute("data-node")
    card = page.locator(f".card[data-node='{old}']")
    card.get_by_role("button", name=f"pause controller-{old}").click()
    page.locator(f".card.leads:not([data-node='{old}'])").wait_for()
    dead.locator(".chip", has_text="silent").wait_for()
    assert dead.locator("td").first.inner_text() == "broker 103"
    card.get_by_role("button", name=f"resume controller-{old}").click()
    restart.click()
    dead.locator(".chip", has_text="observer").wait_for()
    assert cluster.nodes()["broker-103"]["state"] == "running"


def test_keyboard_alone_walks_through_the_page(desk: Tab) -> None:
    page = desk.open("/topics?internal=1")
    shows(page, "orders")
    page.keyboard.press("Tab")
    skip = page.locator(".skip")
    assert skip.evaluate("e => e === document.activeElement")
    eventually(lambda: skip.bounding_box()["y"] >= 0, "the link is visible")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert not page.url.endswith("#main"), "the page was not opened a second time"
    rows = page.locator("tbody tr")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "TR":
            break
    assert rows.nth(0).evaluate("e => e === document.activeElement")
    width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert width == "3px"
    page.keyboard.press("ArrowDown")
    assert rows.nth(1).evaluate("e => e === document.activeElement")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.tagName") == "A"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("End")
    name = rows.last.get_attribute("data-key")
    page.keyboard.press("Enter")
    page.locator("h1", has_text=name).wait_for()
    assert page.evaluate("document.activeElement.id") == "main"


def background(page: Any) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_dark_mode_follows_the_system_and_the_switch(browser: Any, console: Console) -> None:
    with tab(browser, console.address, color_scheme="light") as light:
        is_live(light.page)
        bright = background(light.page)
        light.page.locator("#theme").click()
        dark = background(light.page)
        assert dark != bright
        light.open("/brokers")
        assert background(light.page) == dark
    with tab(browser, console.address, color_scheme="dark") as night:
        is_live(night.page)
        assert background(night.page) == dark
        night.page.locator("#theme").click()
        assert background(night.page) == bright


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser: Any, console: Console, scheme: str) -> None:
    with tab(browser, console.address, color_scheme=scheme) as opened:
        page = opened.page
        is_live(page)
        shows(page, "controller 1")
        low = page.evaluate(CONTRASTS)
        page = opened.open("/replication?name=orders")
        shows(page, "epoch 0")
        low += page.evaluate(CONTRASTS)
    assert low == []


def test_slider_travels_through_the_metadata(desk: Tab) -> None:
    page = desk.open("/metadata?path=/topics")
    page.locator("tr[data-key='orders']").wait_for()
    slider = page.locator("input[type=range]")
    slider.focus()
    page.keyboard.press("Home")
    page.locator(".heading .lead", has_text="As of offset 0 ").wait_for()
    page.locator("tr[data-key='orders']").wait_for(state="detached")
    page.keyboard.press("End")
    page.locator("tr[data-key='orders']").wait_for()
    assert "at=" in page.url
    page.get_by_role("link", name="orders/").click()
    page.locator(".crumbs a", has_text="orders").wait_for()


def test_two_offsets_are_compared(desk: Tab) -> None:
    page = desk.open("/metadata?from=0&to=20")
    page.locator(".differences li").first.wait_for()
    assert page.locator(".differences li .chip").first.inner_text() == "+"


def test_message_is_opened_and_closed(desk: Tab) -> None:
    page = desk.open("/messages?topic=orders&partition=0&from=earliest")
    page.get_by_role("button", name="open the message at offset 3", exact=True).click()
    dialog = page.locator("dialog.message")
    dialog.get_by_text("<b>no markup</b>").wait_for()
    assert page.locator("dialog b").count() == 0
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    page.get_by_role("link", name="Newer →").click()
    page.get_by_role("button", name="open the message at offset 25", exact=True).wait_for()


def test_search_for_a_key_by_the_form(desk: Tab) -> None:
    page = desk.open("/messages")
    page.locator("input[name=topic]").fill("orders")
    page.locator("input[name=partition]").fill("all")
    page.locator("input[name=key]").fill("customer-1")
    page.get_by_role("button", name="Read").click()
    page.locator(".note", has_text="have the key").wait_for()
    keys = page.locator("td[data-label=key]").all_inner_texts()
    assert set(keys) == {"customer-1"}


def test_wrong_question_is_answered_on_the_page(browser: Any, console: Console) -> None:
    with tab(browser, console.address, is_quiet=False) as opened:
        page = opened.open("/messages?topic=orders&partition=0&from=offset&value=99999")
        page.locator("#banner", has_text="has no offset 99999; it has 0 to 99").wait_for()
        for kind in ("topic", "group"):
            page = opened.open(f"/{kind}?name=none")
            banner = page.locator("#banner", has_text=f"The cluster has no {kind} 'none'.")
            banner.wait_for()
            is_live(page)
            assert banner.inner_text() == f"The cluster has no {kind} 'none'."
        page = opened.open("/topics?start=x")
        page.locator("#banner", has_text="Start=x is not a whole number").wait_for()
        is_live(page)


def test_topic_is_deleted_and_created_again_while_its_page_is_open(
    cluster: Cluster, desk: Tab
) -> None:
    topics = Topics(cluster.bootstrap)
    topics.create("brief", partitions=2)
    page = desk.open("/topic?name=brief")
    page.locator(".replica.in").first.wait_for()
    assert cluster.cli("topics", "delete", "brief").returncode == 0
    gone = "The cluster has no topic 'brief'; it was deleted while this page showed it."
    page.locator("#banner", has_text=gone).wait_for()
    is_live(page)
    assert page.locator(".replica.in").first.is_hidden()
    assert page.locator("#main").inner_text() == "brief"
    topics.create("brief", partitions=3)
    page.locator(".replica.in").nth(8).wait_for()
    assert page.locator("#banner").is_hidden()


def test_group_that_is_deleted_is_told_on_its_page(cluster: Cluster, desk: Tab) -> None:
    consumer = Consumer(settings(cluster.bootstrap, group_id="brief"))
    consumer.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
    consumer.close()
    page = desk.open("/group?name=brief")
    shows(page, "orders-0")
    assert cluster.cli("groups", "delete", "brief").returncode == 0
    gone = "The cluster has no group 'brief'; it was deleted while this page showed it."
    page.locator("#banner", has_text=gone).wait_for()
    is_live(page)
    assert page.locator("#main").inner_text() == "brief"


def test_report_of_a_run_opens_without_any_rights(desk: Tab) -> None:
    page = desk.open("/runs")
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Leaders die").click()
    report = opened.value
    report.get_by_text("the report").wait_for()
    assert report.evaluate("window.origin") == "null"


def test_live_page_does_not_jump(desk: Tab) -> None:
    page = desk.page
    is_live(page)
    shows(page, "controller 1")
    page.evaluate(
        "window.jumps = 0; new PerformanceObserver(list => { for (const entry of list.getEntries())"
        " jumps += entry.value; }).observe({type: 'layout-shift', buffered: false}); window.beats ="
        " 0; new MutationObserver(() => beats++).observe(document.querySelector('#main'),"
        " {subtree: true, childList: true, characterData: true})"
    )
    eventually(lambda: page.evaluate("beats") > 3, "updates came")
    assert page.evaluate("jumps") < 0.02


def test_console_that_ends_is_noticed(cluster: Cluster, browser: Any, tmp_path: Any) -> None:
    brief = Console(tmp_path, "-b", cluster.bootstrap)
    with brief as begun, tab(browser, begun.address, is_quiet=False) as opened:
        is_live(opened.page)
        assert opened.page.get_by_role("button", name="kill").count() == 0
        brief.command.close()
        opened.page.locator("#status", has_text="stale").wait_for()
        opened.page.locator("#banner", has_text="The console does not answer").wait_for()
        assert opened.page.locator(".card").count() == 3


def test_cluster_that_dies_is_shown_stale_and_comes_back(tmp_path: Any, browser: Any) -> None:
    with Cluster(tmp_path, controllers=1, brokers=1) as short:
        lab = ["--lab", str(short.data_dir), "--allow-changes"]
        with Console(tmp_path, *lab) as console, tab(browser, console.address) as opened:
            page = opened.page
            is_live(page)
            short.kill("controller-1")
            page.locator("#status", has_text="stale").wait_for()
            page.locator("#banner", has_text="The page shows the last state").wait_for()
            assert page.locator(".card").count() == 1
            page.get_by_role("button", name="restart controller-1").click()
            is_live(page)


#: Texts of the page whose contrast with their ground is below 4.5 (WCAG 2, AA).
CONTRASTS = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const linear = (v) => (v /= 255, v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0.99) return color;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    const isSeen = element.checkVisibility() && !element.closest(".unseen, :disabled");
    if (!own || !isSeen) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${element.textContent.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return low;
}"""

"""The page in a real browser without a network: what is drawn, in both themes, on narrow screens, and that
hostile names do no harm. What the console says is a fault."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from compactor.report.data import Report
from compactor.report.page import page
from compactor.report.text import when_text
from compactor.table.version import Operation
from tests.report.browser import Browser
from tests.report.hostile import ATTACK, SORT_COLUMN, TEMPLATES, fail_once, hostile_table
from tests.report.support import MadeUp, compacted, report_of

pytestmark = pytest.mark.browser

DRAWN = "document.documentElement.dataset.drawn"
START = 1_729_416_895_061
"""A Sunday in October of 2024, 09:34:55.061 UTC."""
HOVER = """
Plotly.Fx.hover(document.querySelector("[data-chart=fragments]"), [{curveNumber: 0, pointNumber: 0}]);
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report_of(compacted(tmp_path_factory.mktemp("t")))


@pytest.fixture(scope="module")
def usual(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(report, tmp_path_factory.mktemp("page"))


def saved(report: Report, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(page(report), encoding="utf-8")
    return path


def assert_quiet(chromium: Browser, path: Path) -> None:
    """Nothing in the console, and nothing asked of anybody."""
    assert chromium.said() == []
    assert chromium.requested() == [path.resolve().as_uri()]


def test_every_chart_has_a_mark_for_every_figure(
    chromium: Browser, usual: Path, report: Report
) -> None:
    chromium.open(usual)
    assert chromium(DRAWN) == "yes"
    space, points, runs = report.key_space, report.history.points, report.history.runs
    assert space.before is not None
    bars = len(space.before.bars) + len(space.now.bars)
    assert (
        chromium.marks("fragments", ".barlayer .point path")
        == bars
        == 4 + report.headline.fragments
    )
    sizes = {
        (p.version, s.level, s.lower_bytes) for p in (space.before, space.now) for s in p.sizes
    }
    drawn = "[...document.querySelectorAll('[data-chart=sizes] .barlayer .point path')]"
    assert chromium(f"{drawn}.filter((bar) => bar.getBBox().height > 1).length") == len(sizes)
    assert chromium.marks("reads", ".scatterlayer .point") == 3 * len(points)
    for chart in ("writes", "storage", "ingested-rows", "ingested-bytes"):
        assert chromium.marks(chart, ".scatterlayer .point") == len(points)
    stages = [s for run in runs for s in run.figures["stage_seconds"]]
    assert chromium.marks("stages", ".barlayer .point path") >= len(stages) > 0
    assert chromium.marks("memory", ".barlayer .point path") == len(runs) == 1
    assert chromium.marks("memory", ".scatterlayer .point") == 3
    assert_quiet(chromium, usual)


def test_bars_stand_where_their_ranks_are(chromium: Browser, usual: Path, report: Report) -> None:
    chromium.open(usual)
    boxes = chromium(
        "[...document.querySelectorAll('[data-chart=fragments] .subplot.x2y2 .barlayer .point path')]"
        ".map((bar) => bar.getBBox()).map((box) => [box.x, box.width])"
    )
    now = sorted(report.key_space.now.bars, key=lambda bar: (bar.start, bar.end))
    scale = (max(x + w for x, w in boxes) - min(x for x, _ in boxes)) / (
        max(bar.end for bar in now) - min(bar.start for bar in now)
    )
    first = min(x for x, _ in boxes)
    for (x, width), bar in zip(sorted(boxes), now, strict=True):
        assert x - first == pytest.approx((bar.start - now[0].start) * scale, abs=2)
        assert width == pytest.approx((bar.end - bar.start) * scale, abs=2)


def test_hovering_a_bar_says_its_keys(chromium: Browser, usual: Path, report: Report) -> None:
    chromium.open(usual)
    chromium.driver.execute_script(HOVER)
    text = chromium("document.querySelector('[data-chart=fragments] .hoverlayer').textContent")
    assert report.key_space.before is not None
    bar = report.key_space.before.bars[0]
    assert f"first {bar.first_key}" in text
    assert bar.key[-40:] in text


def test_the_theme_follows_the_system_until_somebody_chooses(
    chromium: Browser, usual: Path
) -> None:
    def colors() -> tuple[str, str, str]:
        return (
            chromium.color("body", "backgroundColor"),
            chromium.color("[data-chart=reads] .xtick text", "fill"),
            chromium.color("h1"),
        )

    def press(name: str) -> None:
        chromium.driver.execute_script(
            "document.querySelector(arguments[0]).click()", f"[data-choice={name}]"
        )

    chromium.open(usual, scheme="light")
    light = colors()
    chromium.prefer("dark")
    dark = colors()
    assert all(a != b for a, b in zip(light, dark, strict=True))
    press("light")
    assert colors() == light
    press("dark")
    chromium.prefer("light")
    assert colors() == dark
    assert chromium("document.querySelector('[data-choice=dark]').ariaPressed") == "true"
    press("auto")
    assert colors() == light
    assert_quiet(chromium, usual)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_what_is_behind_them(
    chromium: Browser, usual: Path, scheme: str
) -> None:
    chromium.open(usual, scheme=scheme)
    card = luminance(chromium.color(".card", "backgroundColor"))
    for selector, name in (
        ("h2", "color"), (".card .muted", "color"), ("th", "color"), ("td", "color"),
        ("[data-chart=reads] .xtick text", "fill"), ("[data-chart=reads] .legendtext", "fill"),
    ):  # fmt: skip
        text = luminance(chromium.color(selector, name))
        contrast = (max(text, card) + 0.05) / (min(text, card) + 0.05)
        assert contrast >= 4.5, (selector, contrast)


def luminance(color: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    channels = [int(number) / 255 for number in re.findall(r"\d+", color)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("width", [360, 800, 1360])
def test_nothing_sticks_out_and_no_labels_run_into_each_other(
    chromium: Browser, usual: Path, width: int
) -> None:
    chromium.open(usual, width=width)
    assert chromium("document.documentElement.scrollWidth") <= width
    boxes = chromium(
        "[...document.querySelectorAll('[data-chart=fragments] .x2tick text')]"
        ".map((text) => text.getBoundingClientRect()).map((box) => [box.left, box.right])"
    )
    assert len(boxes) >= 2
    for (_, right), (left, _) in zip(sorted(boxes), sorted(boxes)[1:], strict=False):
        assert right <= left
    assert min(left for left, _ in boxes) >= 0
    assert max(right for _, right in boxes) <= width
    beyond = chromium(
        "[...document.querySelectorAll('.legendtext')].map((text) => "
        "text.getBoundingClientRect().right - text.closest('svg').getBoundingClientRect().right)"
    )
    assert len(beyond) > 8
    assert max(beyond) <= 0


def within_milliseconds() -> MadeUp:
    """Six commits within 160 ms: a label of their time is as wide as labels get."""
    made = MadeUp()
    made.clock.now_ms = START
    for n in range(6):
        made.clock.sleep(-59.968)  # of the minute that a commit takes
        made.ingest((n, n + 5))
    return made


def assert_labels_keep_apart(chromium: Browser, chart: str) -> None:
    boxes = chromium(
        f'[...document.querySelectorAll("[data-chart={chart}] :is(.xtick text, .ytick text, .xtitle)")]'
        ".map((t) => t.getBoundingClientRect()).map((b) => [b.left, b.top, b.right, b.bottom])"
    )
    assert len(boxes) >= 4
    for one, other in itertools.combinations(boxes, 2):
        across = min(one[2], other[2]) - max(one[0], other[0])
        down = min(one[3], other[3]) - max(one[1], other[1])
        assert min(across, down) < 2, (chart, one, other)


@pytest.mark.parametrize("width", [360, 1360])
@pytest.mark.parametrize("axis", ["clock", "version"])
def test_labels_of_axes_over_time_keep_apart(
    chromium: Browser, tmp_path: Path, width: int, axis: str
) -> None:
    path = saved(within_milliseconds().report(), tmp_path)
    chromium.open(path, width=width)
    chromium.driver.execute_script(f"document.querySelector('[data-axis={axis}]').click()")
    for chart in ("reads", "writes", "storage", "ingested-rows"):
        assert_labels_keep_apart(chromium, chart)
    assert_quiet(chromium, path)


@pytest.mark.parametrize("width", [360, 1360])
def test_labels_keep_apart_at_every_hour_however_far_one_zooms(
    chromium: Browser, tmp_path: Path, width: int
) -> None:
    chromium.open(saved(within_milliseconds().report(), tmp_path), width=width)
    chromium.driver.execute_script("document.querySelector('[data-axis=clock]').click()")
    hour = 3_600_000
    for span in (3, 160, 3_000, 100_000, hour, 10 * hour, 40 * hour, 24 * 40 * hour):
        for start in range(START - 24 * hour, START, hour):
            zoom(chromium, "writes", start, start + span)
            assert_labels_keep_apart(chromium, "writes")


def test_long_version_numbers_keep_apart(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(saved(within_milliseconds().report(), tmp_path), width=360)
    chromium.driver.execute_script("document.querySelector('[data-axis=version]').click()")
    for span in (3.5, 6.5, 100, 100_000):
        zoom(chromium, "writes", 1_234_567.8, 1_234_567.8 + span)
        assert_labels_keep_apart(chromium, "writes")


def zoom(chromium: Browser, chart: str, first: float, last: float) -> None:
    chromium.driver.execute_async_script(
        "const [chart, first, last, done] = arguments;"
        "Plotly.relayout(document.querySelector(`[data-chart=${chart}]`),"
        " {'xaxis.range': [first, last]}).then(done)",
        chart, first, last,
    )  # fmt: skip


def test_paper_gets_narrow_charts_in_light_colours(chromium: Browser, usual: Path) -> None:
    chromium.open(usual, scheme="dark")
    dark = chromium.color(".card", "backgroundColor")
    chromium.driver.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    charts = "[...document.querySelectorAll('[data-chart] .main-svg')]"
    assert max(chromium(f"{charts}.map((c) => c.getBoundingClientRect().width)")) <= 700
    assert chromium.color(".card", "backgroundColor") == "rgb(255, 255, 255)"
    assert luminance(chromium.color("[data-chart=reads] .xtick text", "fill")) < 0.2
    chromium.driver.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert max(chromium(f"{charts}.map((c) => c.getBoundingClientRect().width)")) > 700
    assert chromium.color(".card", "backgroundColor") == dark
    assert_quiet(chromium, usual)


def test_hostile_names_and_values_are_shown_and_do_nothing(
    chromium: Browser, tmp_path: Path
) -> None:
    store = hostile_table(tmp_path)
    fail_once(store)
    path = saved(report_of(store), tmp_path)
    chromium.open(path)
    assert chromium(DRAWN) == "yes"
    chromium.driver.execute_script(HOVER)
    assert chromium("window.hacked === undefined")
    assert chromium("document.querySelectorAll('img, iframe, b:not(text b), script').length") == 3
    names = chromium("[...document.querySelectorAll('td.name')].map((cell) => cell.textContent)")
    assert any(name.startswith(ATTACK.format("column")) for name in names)
    assert any(name.startswith(SORT_COLUMN) for name in names)
    assert any(name.startswith(TEMPLATES[:79]) for name in names)
    quarantine = chromium("document.querySelector('#quarantine').textContent")
    assert ATTACK.format("reason") in quarantine
    assert (
        chromium.marks("fragments", ".x2tick a, .x2tick tspan[style*='bold'], .hoverlayer a") == 0
    )
    shown = chromium("document.querySelector('[data-chart=fragments] .hoverlayer').textContent")
    assert "</script>" in shown or "{{ 7 * 7 }}" in shown
    assert_quiet(chromium, path)


def test_if_something_did_get_into_the_page_it_would_not_run(
    chromium: Browser, usual: Path
) -> None:
    chromium.open(usual)
    chromium.driver.execute_async_script(
        """
        const done = arguments[arguments.length - 1];
        document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.hacked = 1'>");
        const script = document.createElement("script");
        script.textContent = "window.hacked = 2";
        document.body.append(script);
        setTimeout(done, 50);
        """
    )
    assert chromium("window.hacked === undefined")
    assert any("Content Security Policy" in line for line in chromium.said())


def test_thousands_of_fragments_are_drawn_in_a_bounded_number_of_bars(
    chromium: Browser, tmp_path: Path
) -> None:
    made = MadeUp()
    young = [made.entry(n % 700, n % 700 + 400) for n in range(3000)]
    old = [made.entry(n * 10, n * 10 + 9, level=1) for n in range(3000)]
    made.commit(Operation.INGEST, [*young, *old])
    report = made.report()
    path = saved(report, tmp_path)
    chromium.open(path)
    drawn = chromium.marks("fragments", ".barlayer .point path")
    assert drawn == len(report.key_space.now.bars) <= 500
    text = chromium("document.body.innerText")
    assert "each row of level 0 of version 1 is where" in text
    assert "3,000 fragments of version 1 are" in text
    assert_quiet(chromium, path)


def burst() -> MadeUp:
    """A commit, an hour, and thirty within two seconds."""
    made = MadeUp()
    made.ingest((0, 5))
    made.clock.sleep(3600)
    for n in range(30):
        made.clock.sleep(-59.93)  # of the minute that a commit takes
        made.ingest((n, n + 5))
    return made


def places(chromium: Browser, chart: str) -> list[float]:
    """Of the first line's points, from the left."""
    boxes = chromium(
        f'[...document.querySelectorAll("[data-chart={chart}] .scatterlayer .trace:first-child .point")]'
        ".map((point) => point.getBoundingClientRect().left)"
    )
    return sorted(boxes)


def test_a_burst_of_commits_is_told_apart_by_version(chromium: Browser, tmp_path: Path) -> None:
    path = saved(burst().report(), tmp_path)
    chromium.open(path)

    def press(name: str) -> None:
        chromium.driver.execute_script(
            "document.querySelector(arguments[0]).click()", f"#writes [data-axis={name}]"
        )

    def gaps() -> dict[str, list[float]]:
        found = {chart: places(chromium, chart) for chart in ("reads", "writes", "storage")}
        return {
            chart: [right - left for left, right in itertools.pairwise(at)]
            for chart, at in found.items()
        }

    for step in gaps().values():  # begins so, since by the clock nothing could be seen
        assert len(step) == 30
        assert step == pytest.approx([step[0]] * 30, abs=0.5)
        assert step[0] > 10
    press("clock")
    for step in gaps().values():
        assert max(step[1:]) < 1 < 400 < step[0]
    assert chromium(
        "[...document.querySelectorAll('[data-axis=clock]')].map((b) => b.ariaPressed)"
    ) == (["true"] * 5)
    press("version")
    assert min(gaps()["storage"]) > 10
    labels = chromium(
        "[...document.querySelectorAll('[data-chart=storage] .xtick text')].map((t) => t.textContent)"
    )
    assert {"10", "20", "30"} <= set(labels)
    assert_quiet(chromium, path)


def test_a_point_says_its_version_and_when(chromium: Browser, tmp_path: Path) -> None:
    made = burst()
    chromium.open(saved(made.report(), tmp_path))
    chromium.driver.execute_script(
        "Plotly.Fx.hover(document.querySelector('[data-chart=storage]'), [{curveNumber: 0, pointNumber: 7}])"
    )
    text = chromium("document.querySelector('[data-chart=storage] .hoverlayer').textContent")
    assert "fragments 8" in text
    assert "version 8 (ingest)" in text
    assert when_text(made.log.at(8).committed_unix_ms) in text


def test_commits_that_are_spread_out_are_drawn_by_the_clock(
    chromium: Browser, tmp_path: Path
) -> None:
    made = MadeUp()
    for n in range(5):
        made.ingest((n, n))
    made.clock.sleep(240)
    made.ingest((5, 5))
    chromium.open(saved(made.report(), tmp_path))
    at = places(chromium, "storage")
    assert at[5] - at[4] == pytest.approx(5 * (at[1] - at[0]), abs=2)
    title = chromium("document.querySelector('[data-chart=storage] .xtitle').textContent")
    assert title == "committed (UTC)"


@pytest.mark.parametrize("width", [360, 1360])
def test_what_quarantine_holds_up_is_on_the_page(
    chromium: Browser, tmp_path: Path, width: int
) -> None:
    made = MadeUp()
    entries = [made.ingest((n, n + 5))[0] for n in range(5)]
    made.quarantine(entries[2], "it lies")
    chromium.open(saved(made.report(), tmp_path), width=width)
    text = chromium("document.querySelector('#pending').textContent")
    assert "Nothing can be done now." in text
    assert "4 fragments wait (40.0 kB)" in text
    assert all(entry.key in text for entry in entries)
    assert "4 fragments, 40.0 kB" in chromium("document.querySelector('#quarantine').textContent")
    assert "40.0 kB held up by quarantine" in chromium(
        "document.querySelector('.tiles').textContent"
    )
    assert chromium("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("fragments", [0, 1])
def test_the_smallest_tables_draw_without_a_word(
    chromium: Browser, tmp_path: Path, fragments: int
) -> None:
    made = MadeUp()
    made.ingest(*[(0, 5)] * fragments)
    path = saved(made.report(), tmp_path)
    chromium.open(path)
    assert chromium(DRAWN) == "yes"
    assert chromium.marks("fragments", ".barlayer .point path") == fragments
    assert_quiet(chromium, path)

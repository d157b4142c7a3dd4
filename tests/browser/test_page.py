"""The attention page in a real browser: choosing, pointing, keys, dark and light, and a hundred sentences of a large model.

Skipped where Chromium and its driver are not installed; `.ci/run` installs both.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt_cli.inspection.dumps import AttentionRecord
from nmt_cli.inspection.maps import AttentionMap, Kind
from nmt_cli.inspection.page import page_end, page_record, page_start

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.chrome.webdriver import WebDriver  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.select import Select  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver (Debian: chromium-driver)")
SWITCHES = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
]
SIDES: dict[Kind, tuple[str, str]] = {
    "encoder": ("source", "source"),
    "decoder": ("outputs", "inputs"),
    "cross": ("outputs", "source"),
}


def record(line: int, source: list[str], outputs: list[str], layers: int, heads: int) -> AttentionRecord:
    """Return a record with made-up weights: row r of head h of layer l looks at column (r + h + l), wrapped around."""
    sides = {"source": source, "outputs": outputs, "inputs": ["<bos>", *outputs[:-1]]}
    maps = []
    for kind, (rows, columns) in SIDES.items():
        names = tuple(sides[rows]), tuple(sides[columns])
        for layer in range(layers):
            weights = np.full((heads, len(names[0]), len(names[1])), 0.1 / len(names[1]), dtype=np.float32)
            for head in range(heads):
                for row in range(len(names[0])):
                    weights[head, row, (row + head + layer) % len(names[1])] += 0.9
            maps.append(AttentionMap(kind, layer, tuple(range(heads)), *names, weights))
    text = " ".join(source[:-1])
    return AttentionRecord(line, text, " ".join(outputs[:-1]), "c", tuple(source), tuple(outputs), "eos", -0.5, maps)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def opened(browser: WebDriver, folder: Path, records: list[AttentionRecord]) -> WebDriver:
    page = folder / "attention.html"
    page.write_text(page_start() + "".join(map(page_record, records)) + page_end(), encoding="utf-8")
    browser.get(page.as_uri())
    return browser


def small(browser: WebDriver, folder: Path) -> WebDriver:
    first = record(1, ["l'été", "<b>", "est", "<eos>"], ["the", "summer", "is", "warm", "<eos>"], 2, 3)
    second = record(2, ["deux", "<eos>"], ["two", "<eos>"], 2, 3)
    return opened(browser, folder, [first, AttentionRecord(3, " ", "", "c"), second])


def chosen(browser: WebDriver, name: str) -> str:
    return Select(browser.find_element(By.ID, name)).first_selected_option.text


def texts(browser: WebDriver, selector: str) -> list[str]:
    return [element.text for element in browser.find_elements(By.CSS_SELECTOR, selector)]


def complaints(browser: Any) -> list[dict[str, Any]]:
    """Return what the page wrote to the browser's console: errors, and whatever it was refused."""
    found: list[dict[str, Any]] = browser.get_log("browser")
    return found


def point(browser: WebDriver, selector: str, index: int) -> None:
    ActionChains(browser).move_to_element(browser.find_elements(By.CSS_SELECTOR, selector)[index]).perform()


def press(browser: WebDriver, keys: str) -> None:
    ActionChains(browser).send_keys(keys).perform()


def test_tokens_light_up_by_weight_from_both_sides(browser: WebDriver, tmp_path: Path) -> None:
    small(browser, tmp_path)
    assert texts(browser, "#sentence option") == ["1: l'été <b> est", "3:", "2: deux"]
    assert [chosen(browser, name) for name in ("kind", "layer", "head")] == ["decoder-encoder attention", "layer 1", "head 1"]
    assert texts(browser, "#rows .token") == ["the", "summer", "is", "warm", "<eos>"]
    assert texts(browser, "#columns .token") == ["l'été", "<b>", "est", "<eos>"]
    point(browser, "#rows .token", 1)
    assert texts(browser, "#columns .token") == ["l'été2", "<b>93", "est2", "<eos>2"]
    assert browser.find_element(By.ID, "said").text.startswith("summer looks at <b> 93 %")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#map .cell.asked")) == 4
    point(browser, "#columns .token", 0)
    assert texts(browser, "#rows .token") == ["the93", "summer2", "is2", "warm2", "<eos>93"]
    assert browser.find_element(By.ID, "said").text.startswith("l'été is looked at by the 93 %")
    assert complaints(browser) == []


def test_choosing_kind_layer_head_and_sentence(browser: WebDriver, tmp_path: Path) -> None:
    small(browser, tmp_path)
    Select(browser.find_element(By.ID, "layer")).select_by_visible_text("layer 2")
    Select(browser.find_element(By.ID, "head")).select_by_visible_text("head 3")
    point(browser, "#rows .token", 0)
    assert browser.find_element(By.ID, "said").text.startswith("the looks at <eos> 93 %"), "column 0 + 2 + 1"
    Select(browser.find_element(By.ID, "head")).select_by_visible_text("mean of heads")
    point(browser, "#rows .token", 0)
    weights = texts(browser, "#columns .token")
    assert weights == ["l'été2", "<b>32", "est32", "<eos>32"], "three heads look at one column each"
    Select(browser.find_element(By.ID, "kind")).select_by_visible_text("decoder self-attention")
    assert texts(browser, "#columns .token") == ["<bos>", "the", "summer", "is", "warm"]
    assert [chosen(browser, name) for name in ("layer", "head")] == ["layer 2", "mean of heads"], "what fits stays chosen"
    Select(browser.find_element(By.ID, "sentence")).select_by_visible_text("2: deux")
    assert texts(browser, "#rows .token") == ["two", "<eos>"]
    Select(browser.find_element(By.ID, "sentence")).select_by_index(1)
    assert texts(browser, "#rows .token") == []
    assert "(blank line)" in browser.find_element(By.ID, "about").text
    Select(browser.find_element(By.ID, "sentence")).select_by_index(0)
    assert len(texts(browser, "#rows .token")) == 5
    assert complaints(browser) == []


def test_keys(browser: WebDriver, tmp_path: Path) -> None:
    small(browser, tmp_path)
    press(browser, "lhh")
    assert [chosen(browser, name) for name in ("layer", "head")] == ["layer 2", "head 3"]
    press(browser, "HLk")
    assert [chosen(browser, name) for name in ("kind", "layer", "head")] == ["encoder self-attention", "layer 1", "head 2"]
    press(browser, "pp")
    assert chosen(browser, "sentence") == "3:"
    press(browser, "n")
    assert chosen(browser, "sentence") == "2: deux"
    browser.find_elements(By.CSS_SELECTOR, "#rows .token")[0].send_keys("")  # the focus alone
    assert browser.find_element(By.ID, "said").text.startswith("deux looks at")


def test_dark_and_light(browser: WebDriver, tmp_path: Path) -> None:
    small(browser, tmp_path)

    def page_is_dark() -> bool:
        colour = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
        return sum(int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]) < 3 * 100

    before = page_is_dark()
    press(browser, "t")
    assert page_is_dark() != before
    browser.find_element(By.ID, "theme").click()
    assert page_is_dark() == before


def test_a_hundred_sentences_of_a_large_model(browser: WebDriver, tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(24)]
    records = [
        record(line, [*words[: 5 + line % 20], "<eos>"], [*words[: 4 + line % 17], "<eos>"], 6, 8) for line in range(1, 101)
    ]
    opened(browser, tmp_path, records)
    assert len(texts(browser, "#sentence option")) == 100
    for line in (100, 50, 3):
        Select(browser.find_element(By.ID, "sentence")).select_by_value(str(line - 1))
        assert len(browser.find_elements(By.CSS_SELECTOR, "#map .cell")) == (6 + line % 20) * (5 + line % 17)
    assert complaints(browser) == []

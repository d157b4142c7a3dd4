"""The documents say what the code does: config reference, faults and their tests, systems and their files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
REQUIRED = "01 02 03 04 05 08 09 10 11 13 14 18 24 25 28"


def test_the_config_reference_is_current() -> None:
    code = "import sys; sys.path.insert(0, 'docs'); import make_reference; sys.stdout.write(make_reference.reference())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (ROOT / "docs" / "config.md").read_text(encoding="utf-8") == done.stdout, "run `make docs`"


def test_every_key_has_a_meaning() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \|.*\|(.*)\|$", (ROOT / "docs" / "config.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert len(rows) >= 70
    assert [key for key, meaning in rows if not meaning.strip()] == []


def test_every_fault_listed_has_a_test_and_the_other_way_round() -> None:
    listed = set(re.findall(r"^\| (PB-\d\d) \|", (ROOT / "docs" / "faults.md").read_text(encoding="utf-8"), flags=re.MULTILINE))
    tested = {
        number
        for path in (ROOT / "tests").rglob("test_*.py")
        for number in re.findall(r"mark\.fault\(\"(PB-\d\d)\"\)", path.read_text(encoding="utf-8"))
    }
    assert listed == tested
    assert listed >= {f"PB-{number}" for number in REQUIRED.split()}


def test_files_named_in_the_documents_exist() -> None:
    named = 0
    for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "data" / "README.md"]:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
            named += 1
        for path in re.findall(r"`((?:attention|models|training|decoding|evaluation)/\w+\.py)`", text):
            assert (ROOT / "nmt_cli" / path).exists(), f"{page.name}: {path}"
            named += 1
        for path in re.findall(r"`(tests/[\w/]+\.py)`", text):
            assert (ROOT / path).exists(), f"{page.name}: {path}"
            named += 1
    assert named >= 30

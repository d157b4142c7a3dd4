"""Sends odd lines through `nmt translate` and checks what comes back.

    python benchmarks/fuzz.py RUN [--lines 10000] [--seed 1] [OPTION …]

The lines hold control characters (NUL too), emoji with joiners, right-to-left text and its marks, piles of combining marks,
white space of every kind, carriage returns, byte-order marks, the names of control symbols, very long words, other scripts; a
few have 50,000 characters, some are blank. They go through the command as a file and as a pipe; then a tenth of them with
bytes that are no UTF-8. OPTIONs are handed on to `nmt translate`. Prints a row for each check, and leaves with 1 if one fails.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt_cli.text.vocab import SPECIALS

SPACES = (
    "\t\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
CONTROLS = "".join(map(chr, (*range(0x0A), *range(0x0B, 0x20), *range(0x7F, 0xA0))))
INVISIBLE = (
    "\u00ad\u034f\u061c\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069"
    "\ufeff\ufff9\ufffe\uffff"
)
EMOJI = [
    "👩\u200d🔬",
    "👨\u200d👩\u200d👧\u200d👦",
    "🏳\ufe0f\u200d🌈",
    "🇫🇷",
    "👍🏽",
    "❤\ufe0f",
    "🧑🏿\u200d🦽\u200d➡\ufe0f",
    "1\ufe0f\u20e3",
    "🫠",
    "\U0010ffff",
    "\U000e0067",
]
WORDS = ["the", "cat", "is", "asleep", "I", "see", "a", "house", "water", "They", "can't;", "l'eau,", "3.14", "1,000", "M."]
WORDS += ["http://x.y/z?a=b&c", "<b>no</b>", "«oui»", "C++", "\\n", "%s", "{0}"]
SCRIPTS = [
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "你好，世界。",
    "こんにちは",
    "안녕하세요",
    "Привет, мир",
    "Γειά σου",
    "สวัสดีชาวโลก",
    "ẞßŒœĲĳ",
    "ﷺ﷽",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
]
SYMBOLS = [*SPECIALS, "<s>", "</s>", "▁", "@@", "⁇", "|||", "<0x0A>", "<unk><eos>", "<eos", "eos>"]
LONG = 50_000
BAD = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"caf\xe9", b"\x80\x80\x80", b"\xf0\x9f\x98"]

Kind = Callable[[random.Random], str]


def some(random: random.Random, of: Sequence[str], most: int, *, between: str = "") -> str:
    """Return one to `most` of some strings, one after the other."""
    return between.join(random.choice(of) for _ in range(random.randint(1, most)))


def sentence(random: random.Random) -> str:
    """Return some words."""
    return some(random, WORDS, 12, between=" ")


def sprinkled(random: random.Random, of: Sequence[str]) -> str:
    """Return a sentence with some odd strings at places between its characters, the first and the last one included."""
    text = sentence(random)
    for _ in range(random.randint(1, 6)):
        place = random.choice((0, len(text), random.randint(0, len(text))))
        text = text[:place] + random.choice(of) + text[place:]
    return text


KINDS: dict[str, Kind] = {
    "plain": sentence,
    "empty": lambda _: "",
    "spaces only": lambda random: some(random, SPACES, 9),
    "spaces inside": lambda random: sprinkled(random, SPACES),
    "controls": lambda random: sprinkled(random, CONTROLS),
    "controls only": lambda random: some(random, CONTROLS, 20),
    "invisible": lambda random: sprinkled(random, INVISIBLE),
    "invisible only": lambda random: some(random, INVISIBLE, 9),
    "carriage returns": lambda random: sprinkled(random, ["\r"]) + "\r" * random.randint(0, 3),
    "emoji": lambda random: sprinkled(random, EMOJI),
    "emoji only": lambda random: some(random, EMOJI, 30),
    "scripts": lambda random: some(random, [*SCRIPTS, *WORDS], 8, between=random.choice(["", " ", "\u200f", "\u202e"])),
    "combining marks": lambda random: "e" + some(random, [chr(code) for code in range(0x300, 0x370)], 300) + sentence(random),
    "control symbols": lambda random: some(random, [*SYMBOLS, "cat"], 8, between=random.choice(["", " "])),
    "long word": lambda random: random.choice(["x", "é", "漢", "-", "0", "'"]) * random.randint(100, 2000),
    "digits": lambda random: some(random, "0123456789.,-+eE%", 60),
    "marks": lambda random: some(random, "!?.,;:'\"()[]{}«»“”…—-–/\\|&%$#@*^~`<>=", 60),
    "any code point": lambda random: "".join(map(any_character, [random] * random.randint(1, 40))),
    "one character": lambda random: any_character(random),
    "the same word": lambda random: f"{random.choice(WORDS)} " * random.randint(2, 120),
}
GIANTS: dict[str, Kind] = {
    "a word of 50,000 letters": lambda _: "x" * LONG,
    "50,000 spaces": lambda _: " " * LONG,
    "50,000 characters of words": lambda _: ("the cat sees " * (LONG // 13 + 1))[:LONG],
    "50,000 combining marks": lambda _: "\u0301" * LONG,
    "50,000 NULs": lambda _: "\x00" * LONG,
    "50,000 characters of any kind": lambda random: "".join(map(any_character, [random] * LONG)),
}


def any_character(random: random.Random) -> str:
    """Return a character that is neither a newline nor a surrogate, from all of Unicode or from its beginning."""
    while True:
        code = random.randrange(random.choice((0x100, 0x3000, 0x110000)))
        if code != 0x0A and not 0xD800 <= code < 0xE000:
            return chr(code)


def odd_lines(count: int, seed: int) -> list[str]:
    """Return at least `count` lines, every kind in turn, giants in between."""
    draw = random.Random(seed)
    kinds, giants = list(KINDS.values()), list(GIANTS.values())
    lines = [kinds[number % len(kinds)](draw) for number in range(max(count, len(kinds)))]
    for number, giant in enumerate(giants):
        lines.insert((number + 1) * len(lines) // (len(giants) + 1), giant(draw))
    return lines


def broken_bytes(line: str, draw: random.Random) -> bytes:
    """Return a line in UTF-8 with something in it that is not."""
    text = line.encode()
    place = draw.randint(0, len(text))
    return text[:place] + draw.choice(BAD) + text[place:]


@dataclass(frozen=True)
class Answer:
    """What the command left: exit code, the bytes of its output (None: there is none) and standard error."""

    code: int
    out: bytes | None
    err: str


def translate(run: Path, options: Sequence[str], source: bytes, *, through: str) -> Answer:
    """Translate some bytes, as a file (to a file) or as a pipe (to standard output)."""
    command = [sys.executable, "-m", "nmt_cli", "translate", str(run), *options]
    with tempfile.TemporaryDirectory() as folder:
        if through == "pipe":
            done = subprocess.run(command, input=source, capture_output=True, check=False)
            return Answer(done.returncode, done.stdout, done.stderr.decode())
        file, out = Path(folder) / "in.txt", Path(folder) / "out.txt"
        file.write_bytes(source)
        done = subprocess.run([*command, str(file), "--out", str(out)], capture_output=True, check=False)
        return Answer(done.returncode, out.read_bytes() if out.exists() else None, done.stderr.decode())


@dataclass(frozen=True)
class Check:
    """A row of the table."""

    name: str
    told: str
    good: bool


def checks_of(name: str, lines: Sequence[str], answer: Answer) -> list[Check]:
    """Return what is to be said of an answer to lines that must be translated."""
    found = (answer.out or b"").decode().split("\n")
    whole = found.pop() == ""
    blank = [number for number, line in enumerate(lines) if not line.split()]
    filled = sum(bool(found[number]) for number in blank if number < len(found))
    symbols = sum(symbol in line for line in found for symbol in SPECIALS)
    white = sum(" ".join(line.split()) != line for line in found)
    return [
        Check(f"{name}: exit code", str(answer.code), answer.code == 0),
        Check(f"{name}: lines in, lines out", f"{len(lines):,}, {len(found):,}", whole and len(found) == len(lines)),
        Check(f"{name}: tracebacks", str(answer.err.count("Traceback")), "Traceback" not in answer.err),
        Check(f"{name}: blank lines, answered with text", f"{len(blank):,}, {filled:,}", bool(blank) and not filled),
        Check(f"{name}: control symbols in the output", str(symbols), symbols == 0),
        Check(f"{name}: lines with white space but single plain spaces", str(white), white == 0),
        Check(f"{name}: lines with text", f"{sum(map(bool, found)):,}", any(found)),
    ]


def refused(name: str, answer: Answer) -> list[Check]:
    """Return what is to be said of an answer to bytes that are no UTF-8, where that is an error."""
    wrote = 0 if answer.out is None else answer.out.count(b"\n")
    return [
        Check(f"{name}: exit code", str(answer.code), answer.code == 3),
        Check(f"{name}: tracebacks", str(answer.err.count("Traceback")), "Traceback" not in answer.err),
        Check(f"{name}: lines written", str(wrote), answer.out is None),
    ]


def all_checks(run: Path, options: Sequence[str], count: int, seed: int) -> list[Check]:
    """Translate and check."""
    lines = odd_lines(count, seed)
    text = "".join(f"{line}\n" for line in lines).encode()
    file, pipe = (translate(run, options, text, through=through) for through in ("file", "pipe"))
    rows = checks_of("file", lines, file) + checks_of("pipe", lines, pipe)
    pairs = zip((file.out or b"").split(b"\n"), (pipe.out or b"").split(b"\n"), strict=False)
    differ = sum(one != other for one, other in pairs)  # ties within rounding: other chunks are other batches
    rows.append(Check("file and pipe: lines that differ (at most 1 in 1,000)", str(differ), differ <= len(lines) / 1000))
    draw = random.Random(seed)
    few = draw.sample(lines, len(lines) // 10)
    broken = b"".join(broken_bytes(line, draw) + b"\n" for line in few)
    shown = broken.decode(errors="replace").split("\n")[:-1]
    # a blank line is not blank any more once it holds a bad byte: one is put at the end
    replaced = translate(run, [*options, "--invalid-utf8", "replace"], broken + b"\n", through="file")
    rows += checks_of("no UTF-8, replaced", [*shown, ""], replaced)
    return rows + refused("no UTF-8, an error", translate(run, options, broken, through="file"))


def main() -> int:
    """Check and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments, options = parser.parse_known_args()
    rows = all_checks(arguments.run, options, arguments.lines, arguments.seed)
    for row in rows:
        sys.stdout.write(f"{row.name:<66}  {row.told:>16}{'' if row.good else '  <- wrong'}\n")
    bad = sum(not row.good for row in rows)
    sys.stdout.write(f"{len(rows)} checks, {bad} failed\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

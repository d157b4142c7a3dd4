"""Draws the pictures of docs/attention.md into docs/pictures: those of every `nmt demo`, and those of a trained model.

    python docs/make_pictures.py [RUN]

RUN is the folder of a finished `nmt train configs/tatoeba600-transformer.yaml`; without it the pictures of a trained model
stay as they are. The demonstration `complexity` measures times: draw it on a quiet machine. The others give the same picture
every time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from nmt_cli.cli.attn_dump import DumpOptions, run_attn_dump
from nmt_cli.cli.demo import DEMOS
from nmt_cli.cli.options import SearchOptions
from nmt_cli.inspection.maps import KINDS
from nmt_cli.inspection.plots import to_png
from nmt_cli.runs.folder import write_atomically

FOLDER = Path(__file__).parent / "pictures"
SEED = 1
SENTENCE = "i'm home ."


def main() -> None:
    """Write the pictures; a run that cannot be used is told before anything is drawn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", nargs="?", type=Path)
    run = parser.parse_args().run
    written = [] if run is None else draw_sentence(run, FOLDER)
    written += draw_demos(FOLDER)
    sys.stderr.write(f"docs/pictures: {len(written)} pictures written: {', '.join(written)}\n")


def draw_demos(folder: Path) -> list[str]:
    """Write the pictures of every demonstration, `NAME-STEM.png`; return their names."""
    written = []
    for name, demo in DEMOS.items():
        for stem, figure in demo(SEED).pictures.items():
            written.append(f"{name}-{stem}.png")
            write_atomically(folder / written[-1], to_png(figure))
    return written


def draw_sentence(run: Path, folder: Path) -> list[str]:
    """Write the attention of a Transformer over the sentence, `home-KIND.png`; return the names."""
    written = []
    with tempfile.TemporaryDirectory() as temporary:
        run_attn_dump(run, SearchOptions(), DumpOptions(text=SENTENCE, out=Path(temporary), formats=("png",)))
        for kind in KINDS:
            written.append(f"home-{kind}.png")
            write_atomically(folder / written[-1], (Path(temporary) / f"line-00001-{kind}.png").read_bytes())
    return written


if __name__ == "__main__":
    main()

"""The same run through both engines: how many translations are the same, and how far the scores of the others are apart.

    nmt export RUN --to ctranslate2 --in-place
    python benchmarks/engines.py RUN SOURCE REFERENCE [--lines 1000]

Beam 1 and beam 5, length penalty 0 and 1. Where two translations differ, the gap is that between the scores that our model
gives both (each from a forced pass): a search that went another way because two hypotheses were next to equal leaves a small
gap. For int8 the BLEU is compared.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from nmt_cli import Translator, load_run
from nmt_cli.decoding.engine import Hypothesis, hypothesis_score
from nmt_cli.decoding.forced import forced_log_probabilities
from nmt_cli.decoding.torch_engine import TorchEngine
from nmt_cli.evaluation.scores import score_corpus
from nmt_cli.text.parallel import read_lines

CASES = ((1, 0.0), (5, 0.0), (5, 1.0))


def translated(translator: Translator, lines: list[str], beam: int, alpha: float) -> tuple[list[str], list[Hypothesis | None]]:
    """Return texts and best hypotheses."""
    search = dataclasses.replace(translator.settings.search, beam_size=beam, length_penalty=alpha)
    settings = dataclasses.replace(translator.settings, search=search)
    found = list(Translator(translator.engine, translator.source, translator.target, settings).stream(lines))
    return [one.text for one in found], [one.hypotheses[0] if one.hypotheses else None for one in found]


def forced_score(translator: Translator, line: str, found: Hypothesis | None, alpha: float) -> float:
    """Return the score that our model gives a translation, whichever engine found it."""
    assert isinstance(translator.engine, TorchEngine)
    if found is None:
        return 0.0
    source = translator.fitted(translator.source.encode(line))
    [scores] = forced_log_probabilities(translator.engine.model, [source], [found.tokens], translator.engine.device)
    total = scores.sum() if found.ended == "eos" else scores[:-1].sum()
    return hypothesis_score(float(total), len(found.tokens), alpha)


def main() -> int:
    """Translate, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    options = parser.parse_args()
    lines, references = (read_lines(path)[: options.lines] for path in (options.source, options.reference))
    torch, exported, small = (
        load_run(options.run, device="cpu"),
        load_run(options.run, device="cpu", engine="ctranslate2"),
        load_run(options.run, device="cpu", engine="ctranslate2", precision="int8"),
    )
    fine = True
    print("beam  penalty  same  differ  largest gap   ours better  BLEU torch  float32   int8")
    for beam, alpha in CASES:
        texts, ours = translated(torch, lines, beam, alpha)
        others, theirs = translated(exported, lines, beam, alpha)
        differ = [i for i, (one, other) in enumerate(zip(texts, others, strict=True)) if one != other]
        gaps = [forced_score(torch, lines[i], ours[i], alpha) - forced_score(torch, lines[i], theirs[i], alpha) for i in differ]
        bleus = [
            score_corpus("bleu", found, references, target="fr").score
            for found in (texts, others, translated(small, lines, beam, alpha)[0])
        ]
        share = 1 - len(differ) / len(lines)
        fine &= share >= 0.99
        print(
            f"{beam:>4}  {alpha:>7}  {share:.1%}  {len(differ):>4}  {max(map(abs, gaps), default=0.0):>11.2e}  "
            f"{sum(gap > 0 for gap in gaps):>11}  {bleus[0]:>10.2f}  {bleus[1]:>7.2f}  {bleus[2]:>5.2f}"
        )
        for i, gap in zip(differ, gaps, strict=True):
            print(f"      line {i + 1}: gap {gap:+.2e}\n        torch        {texts[i]}\n        ctranslate2  {others[i]}")
    return int(not fine)


if __name__ == "__main__":
    sys.exit(main())

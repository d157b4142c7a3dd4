"""Checks the translations of a run on a file of text, one line a sentence.

- as many lines out as in
- beam 1 = a plain greedy loop without any cache that feeds the whole prefix again at each step
- each score = the one of a forced pass over the translation
- batches of 1, of 64, and the lines in reverse order give the same hypotheses, but for ties within 1e-4

    python benchmarks/agreement.py RUN FILE [--lines 1000] [--beam 5]

Prints a table, and leaves with 1 where something differs by more than 1e-4.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import torch

from nmt_cli import Translator, load_run
from nmt_cli.decoding.engine import Hypothesis, hypothesis_score
from nmt_cli.decoding.forced import forced_log_probabilities
from nmt_cli.decoding.search import NEVER
from nmt_cli.decoding.torch_engine import TorchEngine
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.text.parallel import read_lines
from nmt_cli.text.vocab import BOS, EOS

TOLERANCE = 1e-4


def model_of(translator: Translator) -> Seq2Seq:
    """Return the model of a translator."""
    assert isinstance(translator.engine, TorchEngine)
    return translator.engine.model


def translated(translator: Translator, lines: list[str], *, beam: int, batch: int) -> list[Hypothesis | None]:
    """Return the best hypothesis of each line in batches of `batch`; None for a blank line."""
    search = dataclasses.replace(translator.settings.search, beam_size=beam)
    settings = dataclasses.replace(translator.settings, search=search, batch_sentences=batch, batch_tokens=1 << 30)
    found = Translator(translator.engine, translator.source, translator.target, settings).stream(lines)
    return [translation.hypotheses[0] if translation.hypotheses else None for translation in found]


@torch.inference_mode()
def plain_greedy(translator: Translator, line: str) -> tuple[int, ...]:
    """Return the ids that the most probable token at each step gives, with nothing kept from one step to the next."""
    model, source = model_of(translator), translator.fitted(translator.source.encode(line))
    ids, visible = torch.tensor([[*source, EOS]]), torch.ones(1, len(source) + 1, dtype=torch.bool)
    target: list[int] = []
    limit = translator.settings.search.limit(len(source) + 1)
    for _ in range(min(limit, model.max_positions or limit)):
        hidden = model(ids, visible, torch.tensor([[BOS, *target]])).hidden[:, -1]
        logits = model.decoder.project(hidden)[0]
        logits[list(NEVER)] = -torch.inf
        token = int(logits.argmax())
        if token == EOS:
            break
        target.append(token)
    return tuple(target)


def forced_scores(translator: Translator, lines: list[str], found: list[Hypothesis | None]) -> list[float]:
    """Return the score of each hypothesis from one pass over it; 0 for a blank line."""
    model, alpha = model_of(translator), translator.settings.search.length_penalty
    scores = [0.0] * len(lines)
    work = [(index, hypothesis) for index, hypothesis in enumerate(found) if hypothesis is not None]
    for start in range(0, len(work), 50):
        part = work[start : start + 50]
        sources = [translator.fitted(translator.source.encode(lines[index])) for index, _ in part]
        rows = forced_log_probabilities(model, sources, [h.tokens for _, h in part], torch.device("cpu"))
        for (index, hypothesis), row in zip(part, rows, strict=True):
            total = row.sum() if hypothesis.ended == "eos" else row[:-1].sum()
            scores[index] = hypothesis_score(float(total), len(hypothesis.tokens), alpha)
    return scores


def compared(one: list[Hypothesis | None], other: list[Hypothesis | None]) -> tuple[int, float]:
    """Return how many hypotheses have other tokens, and the largest difference of their scores."""
    assert [a is None for a in one] == [b is None for b in other]
    both = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    return sum(a.tokens != b.tokens for a, b in both), max((abs(a.score - b.score) for a, b in both), default=0.0)


def main() -> int:
    """Check and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--beam", type=int, default=5)
    arguments = parser.parse_args()
    lines = read_lines(arguments.file)[: arguments.lines]
    translator = load_run(arguments.run, device="cpu")
    out = translator.translate(lines)
    written = "".join(f"{text}\n" for text in out).count("\n")
    rows = [("lines in, lines out", f"{len(lines)}, {written}", float(written != len(lines)))]
    for beam in (1, arguments.beam):
        usual = translated(translator, lines, beam=beam, batch=64)
        single = translated(translator, lines, beam=beam, batch=1)
        backwards = translated(translator, lines[::-1], beam=beam, batch=64)[::-1]
        for name, other in (("batch 1 and batch 64", single), ("lines in reverse order", backwards)):
            count, gap = compared(usual, other)
            rows.append((f"beam {beam}: {name}", f"{count} texts differ, scores by at most {gap:.1e}", gap))
        forced = forced_scores(translator, lines, usual)
        gap = max((abs(h.score - score) for h, score in zip(usual, forced, strict=True) if h is not None), default=0.0)
        rows.append((f"beam {beam}: score and forced pass", f"differ by at most {gap:.1e}", gap))
        if beam == 1:
            greedy = [plain_greedy(translator, line) if h is not None else () for line, h in zip(lines, usual, strict=True)]
            differ = sum(h is not None and h.tokens != tokens for h, tokens in zip(usual, greedy, strict=True))
            rows.append(("beam 1 and a plain greedy loop", f"{differ} texts differ", float(differ)))
    for name, text, _ in rows:
        sys.stdout.write(f"{name:<40}  {text}\n")
    return int(any(gap > TOLERANCE for _, _, gap in rows))


if __name__ == "__main__":
    sys.exit(main())

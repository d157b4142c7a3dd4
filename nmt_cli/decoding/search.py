"""Greedy and beam search, seeing nothing of a model but its interface.

The rules of beam search, for each sentence of a batch: a step looks at the best 2k continuations of its k hypotheses; those
among the best k that end are finished; the beam is filled up with the best that have not ended; the sentence is done when k
have finished or at its length limit. A sentence that is done leaves the batch. Greedy search is a beam of 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt_cli.decoding.engine import Hypothesis, SearchSettings, hypothesis_score
from nmt_cli.models.interface import DecoderState, Encoded, Seq2Seq
from nmt_cli.text.vocab import BOS, EOS, PAD, UNK

NEVER = (PAD, UNK, BOS)
"""Tokens that no translation contains, but for the unknown token where it is asked for."""


def next_log_probabilities(
    model: Seq2Seq, last: Tensor, state: DecoderState, never: Sequence[int] = NEVER
) -> tuple[Tensor, DecoderState]:
    """Return log-probabilities `(N, V)` in float32 of the token after `last` `(N,)`, and the state after `last`."""
    output, state = model.decoder(last.unsqueeze(1), state)
    logits = model.decoder.project(output.hidden[:, 0])  # (N, 1, D) -> (N, V)
    log_probabilities = logits.float().log_softmax(dim=-1)
    log_probabilities[:, list(never)] = -torch.inf
    return log_probabilities, state


def search(model: Seq2Seq, encoded: Encoded, limits: Sequence[int], settings: SearchSettings) -> list[list[Hypothesis]]:
    """Return the hypotheses of each encoded sentence, best first.

    Args:
        model: In evaluation mode.
        encoded: B sentences.
        limits: Most target tokens of each, end mark included.
        settings: Beam size k and length penalty.
    """
    return _Beams(model, encoded, limits, settings).run()


class _Beams:
    """The live hypotheses of the sentences still at work: row `i * k + j` of the state is hypothesis j of the i-th of them."""

    def __init__(self, model: Seq2Seq, encoded: Encoded, limits: Sequence[int], settings: SearchSettings) -> None:
        self.model, self.size, self.alpha = model, settings.beam_size, settings.length_penalty
        self.never = [token for token in NEVER if not (settings.unknown and token == UNK)]
        count, device = encoded.memory.shape[0], encoded.memory.device
        self.device = device
        self.finished: list[list[Hypothesis]] = [[] for _ in range(count)]
        self.sentences = list(range(count))
        self.limits = list(limits)
        self.state: DecoderState = model.decoder.start(encoded)
        if self.size > 1:
            self.state = self.state.reorder(torch.arange(count, device=device).repeat_interleave(self.size))
        self.tokens = torch.full((count * self.size, 1), BOS, dtype=torch.int64, device=device)  # (rows, so far)
        self.totals = torch.full((count, self.size), -torch.inf, device=device)  # only one hypothesis at the start
        self.totals[:, 0] = 0.0

    def run(self) -> list[list[Hypothesis]]:
        """Step until every sentence is done."""
        step = 0
        while self.sentences:
            step += 1
            self._step(step)
        return [sorted(found, key=lambda hypothesis: -hypothesis.score)[: self.size] for found in self.finished]

    def _step(self, step: int) -> None:
        log_probabilities, self.state = next_log_probabilities(self.model, self.tokens[:, -1], self.state, self.never)
        vocabulary = log_probabilities.shape[1]
        continued = self.totals.unsqueeze(2) + log_probabilities.view(len(self.sentences), self.size, vocabulary)
        width = min(2 * self.size, self.size * vocabulary)
        totals, flat = continued.flatten(1).topk(width, dim=1)  # (B, k, V) -> (B, 2k), best first
        beams, words = flat // vocabulary, flat % vocabulary
        ends = words == EOS
        self._finish(step, totals, beams, words, ends)
        # the best k that have not ended, in order: at most one continuation of each hypothesis ends, so 2k suffice
        chosen = ends.to(torch.int8).argsort(dim=1, stable=True)[:, : self.size]  # (B, k)
        staying = [
            index
            for index, sentence in enumerate(self.sentences)
            if len(self.finished[sentence]) < self.size and step < self.limits[sentence]
        ]
        self.sentences = [self.sentences[index] for index in staying]
        if not staying:
            return
        kept = torch.tensor(staying, device=self.device)
        chosen, beams, words = chosen[kept], beams[kept], words[kept]
        self.totals = totals[kept].gather(1, chosen)
        rows = (kept.unsqueeze(1) * self.size + beams.gather(1, chosen)).flatten()  # (B', k) -> rows of the step before
        self.tokens = torch.cat((self.tokens[rows], words.gather(1, chosen).view(-1, 1)), dim=1)
        self.state = self.state.reorder(rows)

    def _finish(self, step: int, totals: Tensor, beams: Tensor, words: Tensor, ends: Tensor) -> None:
        """Put aside those of the best k that end here, by end mark or at the limit."""
        at_limit = torch.tensor([step >= self.limits[sentence] for sentence in self.sentences], device=self.device)
        over = (ends | at_limit.unsqueeze(1))[:, : self.size] & totals[:, : self.size].isfinite()
        for index, rank in over.nonzero().tolist():
            past = self.tokens[index * self.size + int(beams[index, rank]), 1:].tolist()
            ended = bool(ends[index, rank])
            tokens = tuple(past if ended else [*past, int(words[index, rank])])
            total = float(totals[index, rank])
            score = hypothesis_score(total, len(tokens), self.alpha)
            self.finished[self.sentences[index]].append(Hypothesis(tokens, total, score, "eos" if ended else "limit"))

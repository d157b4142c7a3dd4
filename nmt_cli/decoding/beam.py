"""Batched beam search, of which greedy search and sampling are special cases.

The rules, for each sentence of a batch: a step looks at the best 2k continuations of its k hypotheses; those among the best k
that end are finished; the beam is filled up with the best that have not ended; the sentence is done when k have finished (or,
with `stopping: exact`, when no live hypothesis can still win a place among the best k), or at its length limit. Greedy
search is a beam of 1. In sampling, each of the k hypotheses has one continuation, drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from nmt_cli.decoding.engine import Hypothesis, SearchSettings
from nmt_cli.decoding.search import Constraints, Draws, Steps, best_continuations
from nmt_cli.models.interface import Encoded, Seq2Seq
from nmt_cli.text.vocab import BOS, EOS

BLOCK_ROWS = 512
"""Hypotheses whose next tokens are ranked at once: few enough to stay in a CPU's cache until the best have been found."""
LIVE_SHARE = 0.9
"""Sentences that are done leave the batch when less than this share of it is at work: moving the others costs time too."""


def search(
    models: Sequence[Seq2Seq],
    encoded: Sequence[Encoded],
    limits: Sequence[int],
    settings: SearchSettings,
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    lines: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each encoded sentence, best first; at least one, and at most `beam_size`.

    Args:
        models: In evaluation mode; several are an ensemble.
        encoded: B sentences, encoded by each of the models.
        limits: Most target tokens of each, end mark included.
        settings: How to search.
        prefixes: Ids that each translation begins with; None: none.
        lines: Number of each sentence, for sampling; None: 0 to B - 1.
    """
    prefixes = [()] * len(limits) if prefixes is None else prefixes
    limits = [max(limit, len(prefix) + 1) for limit, prefix in zip(limits, prefixes, strict=True)]
    return _Beams(models, encoded, limits, settings, prefixes, lines or range(len(limits))).run()


@dataclass(frozen=True)
class _Continuations:
    """The best continuations of B sentences, best first, each `(B, w)`; `chosen` `(B, k)` says which the beam goes on with."""

    totals: Tensor
    log_probabilities: Tensor
    beams: Tensor
    words: Tensor
    chosen: Tensor

    @classmethod
    def joined(cls, parts: Sequence[_Continuations]) -> _Continuations:
        """Return those of several blocks of sentences as one."""
        if len(parts) == 1:
            return parts[0]
        fields = ("totals", "log_probabilities", "beams", "words", "chosen")
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in fields))


class _Beams:
    """The live hypotheses of the sentences at work: row `i * rows + j` of the state is hypothesis j of the i-th of them.

    A sentence has one row in the first step, where nothing distinguishes its hypotheses yet, and k from then on.
    """

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        encoded: Sequence[Encoded],
        limits: Sequence[int],
        settings: SearchSettings,
        prefixes: Sequence[Sequence[int]],
        lines: Sequence[int],
    ) -> None:
        count, self.device = len(limits), encoded[0].memory.device
        self.settings, self.size, self.limits = settings, settings.beam_size, limits
        self.steps = Steps(models, encoded)
        self.constraints = Constraints(settings, prefixes, self.device)
        self.finished: list[list[Hypothesis]] = [[] for _ in range(count)]
        self.sentences = list(range(count))  # in the batch
        self.done = [False] * count
        self.rows = 1
        self.draws: Draws | None = None
        if settings.sampling is not None:
            self.draws, self.rows = Draws(settings.sampling, lines, self.size, max(limits)), self.size
            self.steps.reorder(torch.arange(count, device=self.device).repeat_interleave(self.rows), self.rows)
        self.tokens = torch.full((count * self.rows, 1), BOS, dtype=torch.int64, device=self.device)  # (B x rows, 1 + so far)
        self.log_probabilities = torch.empty((count * self.rows, 0), device=self.device)  # (B x rows, so far)
        self.totals = torch.zeros((count, self.rows), device=self.device)  # minus infinity where nothing lives

    def run(self) -> list[list[Hypothesis]]:
        """Step until every sentence is done."""
        step = 0
        while self.sentences:
            step += 1
            self._step(step)
        return [sorted(found, key=lambda hypothesis: -hypothesis.score)[: self.size] for found in self.finished]

    def _step(self, step: int) -> None:
        hidden = self.steps.advance(self.tokens[:, -1])
        count = max(1, BLOCK_ROWS // self.rows)  # sentences whose probabilities are in memory at once
        blocks = [slice(start, start + count) for start in range(0, len(self.sentences), count)]
        found = _Continuations.joined([self._continuations(hidden, step, block) for block in blocks])
        self._finish(step, found)
        self._mark_done(step, found.totals.gather(1, found.chosen))
        self._go_on(found)

    def _continuations(self, hidden: Sequence[Tensor], step: int, block: slice) -> _Continuations:
        """Return the continuations of a block of sentences: the best ones, or those that were drawn."""
        sentences, rows = self.sentences[block], slice(block.start * self.rows, block.stop * self.rows)
        past, penalty = self.tokens[rows, 1:], self.settings.repetition_penalty
        scores = self.steps.log_probabilities(hidden, rows, (past, penalty) if penalty != 1 else None)
        self.constraints.apply(scores, step, past, sentences)
        if self.draws is None:
            return self._best(scores, self.totals[block])
        words = self.draws.draw(scores, step, sentences)
        of_row = scores.gather(1, words.unsqueeze(1)).view(-1, self.size)
        same = torch.arange(self.size, device=self.device).expand(len(sentences), -1)
        return _Continuations(self.totals[block] + of_row, of_row, same, words.view(-1, self.size), same)

    def _best(self, scores: Tensor, totals: Tensor) -> _Continuations:
        """Return the best 2k continuations of each sentence; impossible ones where there are fewer than k."""
        sums, beams, words = best_continuations(scores, totals, 2 * self.size)
        if (missing := self.size - sums.shape[1]) > 0:  # a beam wider than the vocabulary, at the first step
            sums = functional.pad(sums, (0, missing), value=-torch.inf)
            beams, words = (functional.pad(part, (0, missing)) for part in (beams, words))
        # the best k that have not ended, in order: at most one continuation of each hypothesis ends, so 2k suffice
        chosen = (words == EOS).to(torch.int8).argsort(dim=1, stable=True)[:, : self.size]
        return _Continuations(sums, sums - totals.gather(1, beams), beams, words, chosen)

    def _finish(self, step: int, found: _Continuations) -> None:
        """Put aside those of the best k that end here, by end mark or at the limit, and what can be continued by nothing."""
        totals, ends = found.totals[:, : self.size], found.words[:, : self.size] == EOS
        at_limit = torch.tensor([step >= self.limits[sentence] for sentence in self.sentences], device=self.device)
        alive = totals.isfinite()
        place, rank = ((ends | at_limit.unsqueeze(1)) & alive).nonzero(as_tuple=True)
        rows = place * self.rows + found.beams[place, rank]
        self._put_aside(
            place.tolist(),
            torch.cat((self.tokens[rows, 1:], found.words[place, rank].unsqueeze(1)), dim=1),
            torch.cat((self.log_probabilities[rows], found.log_probabilities[place, rank].unsqueeze(1)), dim=1),
            totals[place, rank],
        )
        stuck = ~alive.any(dim=1, keepdim=True) & self.totals.isfinite()
        place, row = stuck.nonzero(as_tuple=True)
        rows = place * self.rows + row
        self._put_aside(place.tolist(), self.tokens[rows, 1:], self.log_probabilities[rows], self.totals[place, row])
        for index in place.tolist():
            self.done[self.sentences[index]] = True

    def _put_aside(self, places: list[int], tokens: Tensor, log_probabilities: Tensor, totals: Tensor) -> None:
        """Keep hypotheses of the sentences at `places`: tokens and their log-probabilities `(n, T)`, totals `(n,)`."""
        for place, ids, single, total in zip(places, tokens.tolist(), log_probabilities.tolist(), totals.tolist(), strict=True):
            ended = bool(ids) and ids[-1] == EOS
            words = tuple(ids[:-1] if ended else ids)
            score = self.settings.score(total, len(words))
            hypothesis = Hypothesis(words, total, score, "eos" if ended else "limit", tuple(single))
            self.finished[self.sentences[place]].append(hypothesis)

    def _mark_done(self, step: int, totals: Tensor) -> None:
        """Note which sentences need no more steps; `totals` `(B, k)` are those of the hypotheses that would go on."""
        exact = self.settings.stopping == "exact" and self.draws is None
        best = totals.amax(dim=1).tolist() if exact else []
        for place, sentence in enumerate(self.sentences):
            enough = len(self.finished[sentence]) >= self.size
            if enough and exact:
                worst = sorted((hypothesis.score for hypothesis in self.finished[sentence]), reverse=True)[self.size - 1]
                enough = self.settings.score(best[place], self.limits[sentence]) <= worst  # a longer one scores no better
            self.done[sentence] |= enough or step >= self.limits[sentence]

    def _go_on(self, found: _Continuations) -> None:
        """Take the chosen continuations; let sentences that are done leave when there are enough of them."""
        live = [place for place, sentence in enumerate(self.sentences) if not self.done[sentence]]
        if not live:
            self.sentences = []
            return
        places = torch.arange(len(self.sentences), device=self.device)
        totals, log_probabilities, beams, words = (
            part.gather(1, found.chosen) for part in (found.totals, found.log_probabilities, found.beams, found.words)
        )
        if len(live) < LIVE_SHARE * len(self.sentences):
            places = torch.tensor(live, device=self.device)
            totals, log_probabilities, beams, words = (part[places] for part in (totals, log_probabilities, beams, words))
            self.sentences = [self.sentences[place] for place in live]
        over = torch.tensor([self.done[sentence] for sentence in self.sentences], device=self.device)
        self.totals = totals.masked_fill((words == EOS) | over.unsqueeze(1), -torch.inf)
        order = (places.unsqueeze(1) * self.rows + beams).flatten()  # (B', k) -> rows of this step
        self.rows = self.size
        self.tokens = torch.cat((self.tokens[order], words.view(-1, 1)), dim=1)
        self.log_probabilities = torch.cat((self.log_probabilities[order], log_probabilities.view(-1, 1)), dim=1)
        self.steps.reorder(order, self.rows)

"""What every search over our models does at a step: read the last tokens, obey the constraints, rank what may come next.

Nothing of a model is seen but its interface.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nmt_cli.decoding.engine import Sampling, SearchSettings
from nmt_cli.models.interface import DecoderState, Encoded, Seq2Seq
from nmt_cli.text.vocab import BOS, EOS, PAD, UNK

NEVER = (PAD, UNK, BOS)
"""Tokens that no translation contains, but for the unknown token where it is asked for."""
BLOCK = 64
"""Tokens of the vocabulary whose largest is found first, when the best few of all are looked for."""


class Steps:
    """One model, or several whose probabilities are averaged, reading the same hypotheses step by step.

    Args:
        models: In evaluation mode, all of one target vocabulary.
        encoded: B sentences, encoded by each model.
    """

    def __init__(self, models: Sequence[Seq2Seq], encoded: Sequence[Encoded]) -> None:
        self._models = models
        self._states: list[DecoderState] = [model.decoder.start(memory) for model, memory in zip(models, encoded, strict=True)]

    def next(self, last: Tensor, repetition: tuple[Tensor, float] | None = None) -> tuple[Tensor, Tensor]:
        """Return what says how probable each next token is.

        Args:
            last: `(N,)`, the tokens that were chosen last.
            repetition: Tokens so far `(N, T)`, and what their logits are divided by.

        Returns:
            Logits `(N, V)` in float32, which may be changed, and a normaliser `(N, 1)`: log-probability = logit - normaliser.
        """
        found = []
        for index, (model, state) in enumerate(zip(self._models, self._states, strict=True)):
            output, self._states[index] = model.decoder(last.unsqueeze(1), state)
            logits = model.decoder.project(output.hidden[:, 0]).float()  # (N, 1, D) -> (N, V)
            if repetition is not None:
                logits = _less_of(logits, *repetition)
            found.append(logits)
        if len(found) == 1:
            return found[0], found[0].logsumexp(dim=1, keepdim=True)
        # (models, N, V) -> (N, V): the logarithm of the mean probability, but for a constant
        together = torch.stack([logits.log_softmax(dim=1) for logits in found]).logsumexp(dim=0)
        return together, torch.full_like(together[:, :1], float(np.log(len(found))))

    def reorder(self, order: Tensor, beams: int) -> None:
        """Go on with the rows `order`, `beams` for each sentence; see `DecoderState.reorder`."""
        self._states = [state.reorder(order, beams) for state in self._states]


def _less_of(logits: Tensor, tokens: Tensor, penalty: float) -> Tensor:
    """Return logits that are divided by the penalty (multiplied where negative) at the tokens `(N, T)` of each row."""
    held = logits.gather(1, tokens)
    return logits.scatter(1, tokens, torch.where(held > 0, held / penalty, held * penalty))


class Constraints:
    """What a translation must and may not contain.

    Args:
        settings: Shortest length, unknown tokens, repeated n-grams.
        prefixes: For each of B sentences the ids that its translation begins with.
        device: Of the logits.
    """

    def __init__(self, settings: SearchSettings, prefixes: Sequence[Sequence[int]], device: torch.device) -> None:
        self._settings = settings
        self._never = torch.tensor([token for token in NEVER if not (settings.unknown and token == UNK)], device=device)
        self._longest_prefix = max(map(len, prefixes), default=0)
        forced = [[*prefix, *[-1] * (self._longest_prefix - len(prefix))] for prefix in prefixes]
        self._forced = torch.tensor(forced, dtype=torch.int64, device=device).view(len(prefixes), -1)

    def apply(self, logits: Tensor, step: int, tokens: Tensor, sentences: Sequence[int]) -> None:
        """Set the logits of what may not come next to minus infinity. Prefixes come before every other rule.

        Args:
            logits: `(N, V)`, changed in place.
            step: Number of the token that comes next, from 1.
            tokens: `(N, step - 1)`, the tokens so far.
            sentences: Which of the sentences these are, as many rows for each.
        """
        rows, forced = self._forced_now(step, sentences, len(logits))
        before = logits[rows, forced]
        logits.index_fill_(1, self._never, -torch.inf)
        if step <= self._settings.min_length:
            logits[:, EOS] = -torch.inf
        size = self._settings.no_repeat_ngram
        if size and step > size:
            _forbid_repeated(logits, tokens, size)
        logits[rows] = -torch.inf
        logits[rows, forced] = before

    def _forced_now(self, step: int, sentences: Sequence[int], rows: int) -> tuple[Tensor, Tensor]:
        """Return which of the rows have to go on with a token of their prefix, and with which."""
        if step > self._longest_prefix:
            none = self._forced.new_empty(0)
            return none, none
        forced = self._forced[list(sentences), step - 1].repeat_interleave(rows // len(sentences))
        which = (forced >= 0).nonzero()[:, 0]
        return which, forced[which]


def _forbid_repeated(logits: Tensor, tokens: Tensor, size: int) -> None:
    """Forbid each token that would end an n-gram of `size` tokens that is there already."""
    ngrams = tokens.unfold(1, size, 1)  # (N, T) -> (N, T - size + 1, size)
    beginning = tokens[:, tokens.shape[1] - size + 1 :]  # (N, size - 1)
    again = (ngrams[:, :, :-1] == beginning.unsqueeze(1)).all(dim=2)
    rows, places = again.nonzero(as_tuple=True)
    logits[rows, ngrams[rows, places, -1]] = -torch.inf


def best_few(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest `count` of each row `(N, V)` and where they are, both `(N, count)`, best first.

    In a long row the largest of each block is found first: the best few are in the blocks whose largest are best.
    """
    if count == 1:
        return values.max(dim=1, keepdim=True)
    rows, size = values.shape
    blocks = size // BLOCK
    if blocks < 2 * count:
        return values.topk(count, dim=1)
    cut = blocks * BLOCK
    blocked = values[:, :cut].unflatten(1, (blocks, BLOCK))
    chosen = blocked.amax(dim=2).topk(count, dim=1).indices  # (N, count)
    candidates = blocked.gather(1, chosen.unsqueeze(2).expand(-1, -1, BLOCK)).flatten(1)
    places = (chosen.unsqueeze(2) * BLOCK + torch.arange(BLOCK, device=values.device)).flatten(1)
    if cut < size:
        rest = torch.arange(cut, size, device=values.device).expand(rows, -1)
        candidates, places = torch.cat((candidates, values[:, cut:]), dim=1), torch.cat((places, rest), dim=1)
    best, where = candidates.topk(count, dim=1)
    return best, places.gather(1, where)


class Draws:
    """Random numbers for sampling, which depend on (seed, line, number of the hypothesis, step) only.

    Args:
        sampling: Temperature, which tokens are drawn among, seed.
        lines: Number of each of B sentences.
        count: Hypotheses of each.
        steps: Most tokens of any.
    """

    def __init__(self, sampling: Sampling, lines: Sequence[int], count: int, steps: int) -> None:
        self._sampling = sampling
        self._numbers = np.stack(
            [[np.random.default_rng((sampling.seed, line, i)).random(steps) for i in range(count)] for line in lines]
        )  # (B, count, steps)

    def draw(self, logits: Tensor, step: int, sentences: Sequence[int]) -> Tensor:
        """Return a token `(N,)` for each row of logits `(N, V)`, `count` rows for each of `sentences`, drawn at random.

        A number between 0 and 1 falls into one of the intervals that the probabilities, in the order of the vocabulary,
        divide this range into: rounding, which depends on the batch, moves their borders but by a hair.
        """
        kept = _kept((logits / self._sampling.temperature), self._sampling)
        shares = kept.softmax(dim=1).double().cumsum(dim=1)
        numbers = torch.from_numpy(self._numbers[list(sentences), :, step - 1].reshape(-1, 1)).to(logits.device)
        places = torch.searchsorted(shares, numbers * shares[:, -1:], right=True)[:, 0]
        last = shares.shape[1] - 1 - (kept.flip(1) > -torch.inf).int().argmax(dim=1)  # rounding may lead beyond it
        return torch.minimum(places, last)


def _kept(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return logits `(N, V)` with minus infinity where `top_k` and `top_p` leave a token out."""
    if 0 < sampling.top_k < logits.shape[1]:
        least = logits.topk(sampling.top_k, dim=1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if sampling.top_p < 1:
        ranked, order = logits.sort(dim=1, descending=True, stable=True)
        before = ranked.softmax(dim=1).cumsum(dim=1).roll(1, dims=1)  # what the more probable ones have together
        before[:, 0] = 0.0
        out = (before >= sampling.top_p).gather(1, order.argsort(dim=1))
        logits = logits.masked_fill(out, -torch.inf)
    return logits

"""What every search over our models does at a step: read the last tokens, obey the constraints, rank what may come next.

Nothing of a model is seen but its interface.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nmt_cli.decoding.engine import Sampling, SearchSettings
from nmt_cli.models.interface import Decoder, DecoderState, Encoded, Seq2Seq
from nmt_cli.text.vocab import BOS, EOS, PAD, UNK

NEVER = (PAD, UNK, BOS)
"""Tokens that no translation contains, but for the unknown token where it is asked for."""
TURNED_FROM = 16
"""Sentences of a batch from which on the output layer's weight is turned round once for all steps."""
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
        self._projections = [projection(model.decoder, len(encoded[0].memory)) for model in models]
        self._states: list[DecoderState] = [model.decoder.start(memory) for model, memory in zip(models, encoded, strict=True)]

    def advance(self, last: Tensor) -> list[Tensor]:
        """Read the tokens `(N,)` that were chosen last; return each model's hidden states `(N, D)`."""
        hidden = []
        for index, (model, state) in enumerate(zip(self._models, self._states, strict=True)):
            output, self._states[index] = model.decoder(last.unsqueeze(1), state)
            hidden.append(output.hidden[:, 0])  # (N, 1, D) -> (N, D)
        return hidden

    def log_probabilities(
        self, hidden: Sequence[Tensor], rows: slice, repetition: tuple[Tensor, float] | None = None
    ) -> Tensor:
        """Return the log-probabilities `(n, V)` of each next token, float32.

        Args:
            hidden: What `advance` gave.
            rows: Which n of its rows.
            repetition: Tokens so far of these rows `(n, T)`, and what their logits are divided by.
        """
        found = []
        for project, states in zip(self._projections, hidden, strict=True):
            logits = project(states[rows]).float()
            found.append((logits if repetition is None else _less_of(logits, *repetition)).log_softmax(dim=1))
        if len(found) == 1:
            return found[0]
        return torch.stack(found).logsumexp(dim=0) - math.log(len(found))  # (models, n, V) -> (n, V): of the mean probability

    def reorder(self, order: Tensor, beams: int) -> None:
        """Go on with the rows `order`, `beams` for each sentence; see `DecoderState.reorder`."""
        self._states = [state.reorder(order, beams) for state in self._states]


def projection(decoder: Decoder, sentences: int) -> Callable[[Tensor], Tensor]:
    """Return what gives the logits `(n, V)` of hidden states `(n, D)`.

    A CPU multiplies faster by a weight that lies the other way round, up to 1.2 times with few rows; turning it round pays
    where there are some sentences to translate. The bias is one more row of it, for a hidden state that is always 1.
    """
    weight, bias = decoder.output_layer
    if weight.device.type != "cpu" or torch.is_autocast_enabled("cpu") or sentences < TURNED_FROM:
        return decoder.project
    if bias is None:
        turned = weight.t().contiguous()  # (V, D) -> (D, V)
        return lambda hidden: hidden @ turned
    joined = torch.cat((weight.t(), bias.unsqueeze(0)))  # (V, D), (V,) -> (D + 1, V)
    return lambda hidden: functional.pad(hidden, (0, 1), value=1.0) @ joined


def _less_of(logits: Tensor, tokens: Tensor, penalty: float) -> Tensor:
    """Return logits that are divided by the penalty (multiplied where negative) at the tokens `(N, T)` of each row."""
    held = logits.gather(1, tokens)
    return logits.scatter(1, tokens, torch.where(held > 0, held / penalty, held * penalty))


class Constraints:
    """What a translation must and may not contain.

    Args:
        settings: Shortest length, unknown tokens, repeated n-grams.
        prefixes: For each of B sentences the ids that its translation begins with.
        device: Of the log-probabilities.
    """

    def __init__(self, settings: SearchSettings, prefixes: Sequence[Sequence[int]], device: torch.device) -> None:
        self._settings = settings
        self._never = torch.tensor([token for token in NEVER if not (settings.unknown and token == UNK)], device=device)
        self._longest_prefix = max(map(len, prefixes), default=0)
        forced = [[*prefix, *[-1] * (self._longest_prefix - len(prefix))] for prefix in prefixes]
        self._forced = torch.tensor(forced, dtype=torch.int64, device=device).view(len(prefixes), -1)

    def apply(self, log_probabilities: Tensor, step: int, tokens: Tensor, sentences: Sequence[int]) -> None:
        """Set the log-probabilities of what may not come next to minus infinity. Prefixes come before every other rule.

        Args:
            log_probabilities: `(N, V)`, changed in place.
            step: Number of the token that comes next, from 1.
            tokens: `(N, step - 1)`, the tokens so far.
            sentences: Which of the sentences these are, as many rows for each.
        """
        rows, forced = self._forced_now(step, sentences, len(log_probabilities))
        before = log_probabilities[rows, forced]
        log_probabilities.index_fill_(1, self._never, -torch.inf)
        if step <= self._settings.min_length:
            log_probabilities[:, EOS] = -torch.inf
        size = self._settings.no_repeat_ngram
        if size and step > size:
            _forbid_repeated(log_probabilities, tokens, size)
        log_probabilities[rows] = -torch.inf
        log_probabilities[rows, forced] = before

    def _forced_now(self, step: int, sentences: Sequence[int], rows: int) -> tuple[Tensor, Tensor]:
        """Return which of the rows have to go on with a token of their prefix, and with which."""
        if step > self._longest_prefix:
            none = self._forced.new_empty(0)
            return none, none
        forced = self._forced[list(sentences), step - 1].repeat_interleave(rows // len(sentences))
        which = (forced >= 0).nonzero()[:, 0]
        return which, forced[which]


def _forbid_repeated(log_probabilities: Tensor, tokens: Tensor, size: int) -> None:
    """Forbid each token that would end an n-gram of `size` tokens that is there already."""
    ngrams = tokens.unfold(1, size, 1)  # (N, T) -> (N, T - size + 1, size)
    beginning = tokens[:, tokens.shape[1] - size + 1 :]  # (N, size - 1)
    again = (ngrams[:, :, :-1] == beginning.unsqueeze(1)).all(dim=2)
    rows, places = again.nonzero(as_tuple=True)
    log_probabilities[rows, ngrams[rows, places, -1]] = -torch.inf


def best_continuations(log_probabilities: Tensor, totals: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the continuations of each sentence with the largest log-probability in all, best first.

    The best token of each block of the vocabulary is found first: the best few are in the blocks whose best are best.

    Args:
        log_probabilities: `(B x rows, V)`, of the next token.
        totals: `(B, rows)`, of the hypotheses so far.
        count: How many; fewer come where there are fewer.

    Returns:
        Totals, rows (numbers within the sentence) and tokens, each `(B, count)`.
    """
    size = log_probabilities.shape[1]
    (sentences, rows), blocks = totals.shape, size // BLOCK
    by_row = log_probabilities.view(sentences, rows, size)
    if rows * blocks < 2 * count:
        sums = (by_row + totals.unsqueeze(2)).flatten(1)
        best, flat = sums.topk(min(count, rows * size), dim=1)
        return best, flat // size, flat % size
    cut = blocks * BLOCK
    peaks = by_row[:, :, :cut].reshape(sentences, rows, blocks, BLOCK).amax(dim=3) + totals.unsqueeze(2)  # (B, rows, blocks)
    chosen = peaks.flatten(1).topk(count, dim=1).indices  # (B, count), of rows x blocks
    starts = chosen // blocks * size + chosen % blocks * BLOCK
    places = (starts.unsqueeze(2) + torch.arange(BLOCK, device=totals.device)).flatten(1)  # (B, count x BLOCK), of rows x V
    if cut < size:  # what is behind the last whole block
        ends = torch.arange(rows, device=totals.device).unsqueeze(1) * size + torch.arange(cut, size, device=totals.device)
        places = torch.cat((places, ends.view(1, -1).expand(sentences, -1)), dim=1)
    sums = by_row.flatten(1).gather(1, places) + totals.gather(1, places // size)
    best, where = sums.topk(count, dim=1)
    flat = places.gather(1, where)
    return best, flat // size, flat % size


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

    def draw(self, log_probabilities: Tensor, step: int, sentences: Sequence[int]) -> Tensor:
        """Return a token `(N,)` drawn at random for each row of log-probabilities `(N, V)`, `count` rows a sentence.

        A number between 0 and 1 falls into one of the intervals that the probabilities, in the order of the vocabulary,
        divide this range into: rounding, which depends on the batch, moves their borders but by a hair.
        """
        kept = _kept(log_probabilities / self._sampling.temperature, self._sampling)
        shares = kept.softmax(dim=1).double().cumsum(dim=1)
        numbers = torch.from_numpy(self._numbers[list(sentences), :, step - 1].reshape(-1, 1)).to(log_probabilities.device)
        places = torch.searchsorted(shares, numbers * shares[:, -1:], right=True)[:, 0]
        last = shares.shape[1] - 1 - (kept.flip(1) > -torch.inf).int().argmax(dim=1)  # rounding may lead beyond it
        return torch.minimum(places, last)


def _kept(log_probabilities: Tensor, sampling: Sampling) -> Tensor:
    """Return log_probabilities `(N, V)` with minus infinity where `top_k` and `top_p` leave a token out."""
    if 0 < sampling.top_k < log_probabilities.shape[1]:
        least = log_probabilities.topk(sampling.top_k, dim=1).values[:, -1:]
        log_probabilities = log_probabilities.masked_fill(log_probabilities < least, -torch.inf)
    if sampling.top_p < 1:
        ranked, order = log_probabilities.sort(dim=1, descending=True, stable=True)
        before = ranked.softmax(dim=1).cumsum(dim=1).roll(1, dims=1)  # what the more probable ones have together
        before[:, 0] = -1.0  # the most probable one always stays
        out = (before >= sampling.top_p).gather(1, order.argsort(dim=1))
        log_probabilities = log_probabilities.masked_fill(out, -torch.inf)
    return log_probabilities

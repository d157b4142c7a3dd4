"""Lines in, lines out: order kept, blank lines left blank, over-long lines cut, over any engine. No torch here."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

from nmt_cli.decoding.engine import Engine, Hypothesis, SearchSettings
from nmt_cli.errors import DataError
from nmt_cli.text.tokenizers import Tokenizer

CHUNK_LINES = 4096


@dataclass(frozen=True)
class Translation:
    """The translation of one line.

    Args:
        text: Plain text; empty for a blank line.
        hypotheses: Best first; none for a blank line, several pieces' best ones for a line that was split.
        cut: Whether the line was longer than the limit, and cut or split.
        is_split: Whether `hypotheses` are those of several parts.
        prefix: What the translation had to begin with, as tokens: words that the model does not know have no id.
    """

    text: str
    hypotheses: tuple[Hypothesis, ...] = ()
    cut: bool = False
    is_split: bool = False
    prefix: tuple[str, ...] = ()

    @property
    def best(self) -> tuple[Hypothesis, ...]:
        """What its text is made of: the best hypothesis, that of each part after a split, none for a blank line."""
        return self.hypotheses if self.is_split else self.hypotheses[:1]

    @property
    def at_limit(self) -> bool:
        """Whether it was cut at the length limit of translations."""
        return any(hypothesis.ended == "limit" for hypothesis in self.best)

    @property
    def repeats(self) -> bool:
        """Whether it goes round in a loop."""
        return any(repeats_itself(hypothesis.tokens) for hypothesis in self.best)


def repeats_itself(tokens: Sequence[int]) -> bool:
    """Return whether the same few tokens come three times or more, one right after the other, six tokens or more in all."""
    for period in range(1, len(tokens) // 3 + 1):
        run = 0
        for one, other in zip(tokens, tokens[period:], strict=False):
            run = run + 1 if one == other else 0
            if run + period >= max(3 * period, 6):
                return True
    return False


@dataclass(frozen=True)
class TranslatorSettings:
    """How lines are translated.

    Args:
        search: How to search.
        batch_tokens: Sentences x longest source, padding included, in one batch.
        batch_sentences: Most sentences of a batch; None: no limit of their number.
        max_source_length: Longest line in tokens, end mark included.
        long_lines: What happens to longer ones: `cut`, `split` into parts that are translated one by one, or `error`.
    """

    search: SearchSettings = field(default_factory=SearchSettings)
    batch_tokens: int = 4096
    batch_sentences: int | None = None
    max_source_length: int = 1024
    long_lines: Literal["cut", "split", "error"] = "cut"


def _silent(message: str) -> None:
    """Take a warning and do nothing."""


class Translator:
    """Translates raw lines.

    Args:
        engine: Translates batches of ids.
        source: Tokenizer of the source side.
        target: Tokenizer of the target side.
        settings: Search and batch sizes.
        warn: Called with each warning.
        on_progress: Called with the number of lines done since the last call.
    """

    def __init__(
        self,
        engine: Engine,
        source: Tokenizer,
        target: Tokenizer,
        settings: TranslatorSettings,
        *,
        warn: Callable[[str], None] = _silent,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        self.engine, self.source, self.target, self.settings = engine, source, target, settings
        self._warn, self._on_progress = warn, on_progress

    def translate(self, lines: Iterable[str]) -> list[str]:
        """Return the translation of each line, in order."""
        return [translation.text for translation in self.stream(lines)]

    def stream(self, lines: Iterable[str]) -> Iterator[Translation]:
        """Yield a translation for each line, in order, reading `lines` in chunks of a few thousand."""
        iterator = iter(lines)
        first = 1
        while chunk := list(itertools.islice(iterator, CHUNK_LINES)):
            yield from self.translate_chunk(chunk, first_line=first)
            first += len(chunk)

    def translate_chunk(
        self, lines: Sequence[str], *, first_line: int = 1, prefixes: Sequence[str] | None = None
    ) -> list[Translation]:
        """Return a translation for each of `lines`.

        Args:
            lines: Raw lines.
            first_line: Number of the first, for warnings and for sampling.
            prefixes: Text that each translation begins with; None: nothing is forced.
        """
        parts: list[tuple[int, list[int]]] = []  # line index, ids
        cut = [False] * len(lines)
        for index, line in enumerate(lines):
            ids = self.source.encode(line)
            fitting = self._fit(ids, first_line + index)
            cut[index] = sum(map(len, fitting)) < len(ids) or len(fitting) > 1
            parts += [(index, part) for part in fitting]
        forced = None if prefixes is None else self._forced(prefixes, [index for index, _ in parts], first_line)
        found: list[list[Hypothesis]] = [[] for _ in parts]
        waiting = Counter(index for index, _ in parts)  # parts of each line that are not translated yet
        self.report(len(lines) - len(waiting))

        def translated(batch: Sequence[int]) -> list[list[Hypothesis]]:
            return self.engine.translate(
                [parts[i][1] for i in batch],
                self.settings.search,
                prefixes=None if forced is None else [forced[i] for i in batch],
                lines=[first_line + parts[i][0] for i in batch],
            )

        for batch, hypotheses in self._in_turn(translated, self._batches([len(ids) + 1 for _, ids in parts])):
            for i, of_part in zip(batch, hypotheses, strict=True):
                found[i] = of_part
            before = len(+waiting)
            waiting.subtract(parts[i][0] for i in batch)
            self.report(before - len(+waiting))
        of_line: list[list[list[Hypothesis]]] = [[] for _ in lines]
        for (index, _), of_part in zip(parts, found, strict=True):
            of_line[index].append(of_part)
        begin = [()] * len(lines) if prefixes is None else [tuple(self.target.split(prefix)) for prefix in prefixes]
        return [self._join(*line) for line in zip(of_line, cut, begin, strict=True)]

    def _forced(self, prefixes: Sequence[str], lines: Sequence[int], first_line: int) -> list[list[int]]:
        """Return what the translation of each part has to begin with: of the parts of one line, the first one only."""
        forced = [
            [] if place and lines[place - 1] == line else self.target.encode(prefixes[line]) for place, line in enumerate(lines)
        ]
        limit = self.engine.max_source_tokens
        for line, ids in zip(lines, forced, strict=True):
            if limit is not None and len(ids) + 1 > limit:
                raise DataError(
                    f"line {first_line + line}: the prefix has {len(ids) + 1} tokens with an end mark, more than the limit of "
                    f"{limit} of this model; shorten it"
                )
        return forced

    def _in_turn(
        self, translated: Callable[[Sequence[int]], list[list[Hypothesis]]], batches: Iterable[Sequence[int]]
    ) -> Iterator[tuple[Sequence[int], list[list[Hypothesis]]]]:
        """Yield each batch and what `translated` gives for it, in order; as many at once as the engine has workers."""
        batches = list(batches)
        if self.engine.workers == 1 or len(batches) == 1:
            yield from ((batch, translated(batch)) for batch in batches)
            return
        with ThreadPoolExecutor(self.engine.workers) as pool:
            running: deque[tuple[Sequence[int], Future[list[list[Hypothesis]]]]] = deque()
            try:
                for batch in batches:
                    running.append((batch, pool.submit(translated, batch)))
                    if len(running) > self.engine.workers:
                        first, result = running.popleft()
                        yield first, result.result()
                for first, result in running:
                    yield first, result.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def report(self, lines: int) -> None:
        """Tell that so many more lines are done."""
        if self._on_progress and lines:
            self._on_progress(lines)

    def _join(self, parts: Sequence[Sequence[Hypothesis]], cut: bool, prefix: tuple[str, ...]) -> Translation:
        """Return the translation of a line from the hypotheses of its parts: none, one, or several after a split."""
        best = [hypotheses[0] for hypotheses in parts if hypotheses]
        texts = [self.target.decode(one.tokens, prefix=() if place else prefix) for place, one in enumerate(best)]
        hypotheses = tuple(parts[0]) if len(parts) == 1 else tuple(best)
        return Translation(" ".join(filter(None, texts)), hypotheses, cut, len(parts) > 1, prefix)

    @property
    def max_source_tokens(self) -> int:
        """Longest source, end mark included, that is translated in one piece."""
        limits = (self.settings.max_source_length, self.engine.max_source_tokens)
        return min(limit for limit in limits if limit is not None)

    def fitted(self, ids: list[int]) -> list[int]:
        """Return the ids cut to the limit."""
        return ids[: max(1, self.max_source_tokens - 1)]

    def _fit(self, ids: list[int], line: int) -> list[list[int]]:
        """Return the ids as one sentence, cut or split to the limit; nothing for a line without tokens."""
        if not ids:
            return []
        limit = self.max_source_tokens
        if len(ids) + 1 <= limit:
            return [ids]
        message = f"line {line} has {len(ids) + 1} tokens with its end mark, more than the limit of {limit}"
        if self.settings.long_lines == "error":
            raise DataError(f"{message}; shorten it, or use --long-lines cut or split")
        if self.settings.long_lines == "cut":
            self._warn(f"{message}; it was cut")
            return [self.fitted(ids)]
        room = max(1, limit - 1)
        pieces = [ids[start : start + room] for start in range(0, len(ids), room)]
        self._warn(f"{message}; it was split into {len(pieces)} parts")
        return pieces

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield positions in batches of similar lengths, longest first, so that every worker has its share."""
        budget = min(self.settings.batch_tokens, -(-max(lengths, default=0) * len(lengths) // self.engine.workers))
        order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
        batch: list[int] = []
        for index in order:
            count = len(batch) + 1
            too_many = self.settings.batch_sentences is not None and count > self.settings.batch_sentences
            if batch and (too_many or count * lengths[batch[0]] > budget):
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

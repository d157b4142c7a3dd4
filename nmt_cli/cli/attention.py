"""What a translator attended to while it translated: shared by `nmt attn-dump` and `nmt translate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from nmt_cli.decoding.engine import hypothesis_score
from nmt_cli.decoding.torch_engine import TorchEngine
from nmt_cli.decoding.translator import Translation, Translator
from nmt_cli.inspection.alignment import Groups, hard_alignment, tokens_alone, tokens_by_word
from nmt_cli.inspection.dumps import AttentionRecord
from nmt_cli.inspection.maps import Selection, TokenPair, forced_passes
from nmt_cli.text.tokenizers import Tokenizer, WordTokenizer
from nmt_cli.text.vocab import EOS

CHUNK = 256
"""Lines translated at once."""
TOKENS = 2048
"""Lines x longest side, padding included, in one forced pass."""


CROSS = Selection(kinds=("cross",))


class AttentionReader:
    """Makes attention records of lines and their translations.

    Args:
        translator: Of the run.
        selection: Which maps.
        checkpoint: Its folder name.
        words: Align words rather than pieces.
    """

    def __init__(
        self,
        translator: Translator,
        selection: Selection = CROSS,
        checkpoint: str = "",
        *,
        words: bool = False,
    ) -> None:
        self.translator, self.selection, self.checkpoint, self.words = translator, selection, checkpoint, words
        assert isinstance(translator.engine, TorchEngine)
        self.engine = translator.engine

    def records(self, lines: Sequence[str], targets: Sequence[str] | None = None) -> Iterator[AttentionRecord]:
        """Yield the record of each line, in order: its best translation, or the given one, and the maps of a forced pass."""
        for start in range(0, len(lines), CHUNK):
            chunk = lines[start : start + CHUNK]
            if targets is None:
                translations = self.translator.translate_chunk(chunk, first_line=start + 1)
                yield from self.records_of(chunk, translations, first_line=start + 1)
            else:
                work = [self._forced(*pair) for pair in zip(chunk, targets[start : start + CHUNK], strict=True)]
                yield from self._numbered(work, start + 1)

    def records_of(
        self, lines: Sequence[str], translations: Sequence[Translation], *, first_line: int = 1
    ) -> Iterator[AttentionRecord]:
        """Yield the record of each line and the translation that was found for it."""
        yield from self._numbered([self._found(*pair) for pair in zip(lines, translations, strict=True)], first_line)

    def links(self, record: AttentionRecord) -> list[tuple[int, int]]:
        """Return the hard alignment of a record, (source, target), from the mean of its decoder-encoder maps."""
        cross = Selection(kinds=("cross",), average_heads=True, average_layers=True)
        if not record.maps:
            return []
        (one,) = cross.of(record.maps)
        source = self._groups(self.translator.source, record.source_tokens)
        target = self._groups(self.translator.target, record.target_tokens)
        return hard_alignment(one.weights[0], source, target)

    def without_unknown(self, record: AttentionRecord) -> str:
        """Return the translation with each unknown word replaced by the source word that it attends to most (word tokens)."""
        if "<unk>" not in record.target_tokens:
            return record.translation
        source, target = self.translator.source, self.translator.target
        assert isinstance(target, WordTokenizer)
        words = source.split(record.source)
        linked = {place: asked for asked, place in self.links(record)}
        outputs = [token for token in record.target_tokens if token != "<eos>"]
        return target.join(words[linked[i]] if token == "<unk>" else token for i, token in enumerate(outputs))

    def _numbered(self, work: Sequence[tuple[AttentionRecord, TokenPair | None]], first: int) -> Iterator[AttentionRecord]:
        for number, record in enumerate(self._with_maps(work), start=first):
            yield dataclasses.replace(record, line=number)

    def _groups(self, tokenizer: Tokenizer, tokens: Sequence[str]) -> Groups:
        return tokens_by_word(tokens) if self.words and tokenizer.kind != "word" else tokens_alone(tokens)

    def _found(self, line: str, translation: Translation) -> tuple[AttentionRecord, TokenPair | None]:
        record = AttentionRecord(0, line, translation.text, self.checkpoint)
        if not translation.hypotheses:
            return record, None
        best = translation.hypotheses[0]
        pair = self._pair(line, [*best.tokens, EOS] if best.ended == "eos" else list(best.tokens))
        return dataclasses.replace(record, ended=best.ended), pair

    def _forced(self, line: str, target: str) -> tuple[AttentionRecord, TokenPair | None]:
        record = AttentionRecord(0, line, target, self.checkpoint, forced=True)
        if not self.translator.source.encode(line):
            return record, None
        return dataclasses.replace(record, ended="eos"), self._pair(line, [*self.translator.target.encode(target), EOS])

    def _pair(self, line: str, target: list[int]) -> TokenPair:
        source = self.translator.fitted(self.translator.source.encode(line))
        return TokenPair(
            source,
            target,
            tuple(self.translator.source.vocabulary.tokens([*source, EOS])),
            tuple(self.translator.target.vocabulary.tokens(target)),
        )

    def _with_maps(self, work: Sequence[tuple[AttentionRecord, TokenPair | None]]) -> Iterator[AttentionRecord]:
        """Yield the records with tokens, score and maps, in order, from forced passes over several lines at once."""
        batch: list[tuple[AttentionRecord, TokenPair | None]] = []
        longest = 0
        for record, pair in work:
            length = max(len(pair.source) + 1, len(pair.target)) if pair else 0
            if batch and max(longest, length) * (len(batch) + 1) > TOKENS:
                yield from self._passed(batch)
                batch, longest = [], 0
            batch.append((record, pair))
            longest = max(longest, length)
        yield from self._passed(batch)

    def _passed(self, batch: Sequence[tuple[AttentionRecord, TokenPair | None]]) -> Iterator[AttentionRecord]:
        pairs = [pair for _, pair in batch if pair is not None]
        passes = iter(forced_passes(self.engine.model, pairs, self.engine.device) if pairs else [])
        alpha = self.translator.settings.search.length_penalty
        for record, pair in batch:
            if pair is None:
                yield record
                continue
            found = next(passes)
            words = len(pair.target) - (record.ended == "eos")
            yield dataclasses.replace(
                record,
                source_tokens=pair.source_tokens,
                target_tokens=pair.target_tokens,
                score=hypothesis_score(found.log_probability, words, alpha),
                maps=self.selection.of(found.maps),
            )

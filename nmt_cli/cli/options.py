"""Options that mean the same in every command that translates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nmt_cli.config import DecodingConfig
from nmt_cli.decoding.engine import SearchSettings
from nmt_cli.decoding.translator import TranslatorSettings


@dataclass(frozen=True)
class SearchOptions:
    """What was given on the command line; None stands for the run's config."""

    beam: int | None = None
    length_penalty: float | None = None
    max_length: int | None = None
    max_source_length: int | None = None
    long_lines: Literal["cut", "split", "error"] = "cut"
    batch_tokens: int | None = None
    batch_sentences: int | None = None
    checkpoint: str = "best"
    device: str = "auto"
    unknown: bool = False

    def settings(self, config: DecodingConfig) -> TranslatorSettings:
        """Return the settings that these options and the run's config give."""
        penalty = config.length_penalty if self.length_penalty is None else self.length_penalty
        return TranslatorSettings(
            search=SearchSettings(
                self.beam or config.beam_size, penalty, self.max_length or config.max_length, unknown=self.unknown
            ),
            batch_tokens=self.batch_tokens or config.batch_tokens,
            batch_sentences=self.batch_sentences,
            max_source_length=self.max_source_length or config.max_source_length,
            long_lines=self.long_lines,
        )

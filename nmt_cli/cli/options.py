"""Options that mean the same in every command that translates."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nmt_cli.config import DecodingConfig
from nmt_cli.decoding.engine import PenaltyKind, Sampling, SearchSettings
from nmt_cli.decoding.translator import TranslatorSettings
from nmt_cli.errors import ConfigError

EngineName = Literal["torch", "ctranslate2"]
Precision = Literal["float32", "bf16", "int8"]


@dataclass(frozen=True)
class SearchOptions:
    """What was given on the command line; None stands for the run's config."""

    beam: int | None = None
    length_penalty: float | None = None
    length_penalty_kind: PenaltyKind | None = None
    stopping: Literal["beam-full", "exact"] | None = None
    min_length: int = 0
    max_length: int | None = None
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    n_best: int = 1
    sampling: Sampling | None = None
    max_source_length: int | None = None
    long_lines: Literal["cut", "split", "error"] = "cut"
    batch_tokens: int | None = None
    batch_sentences: int | None = None
    checkpoint: str = "best"
    device: str = "auto"
    unknown: bool = False
    ensemble: tuple[Path, ...] = ()
    engine: EngineName = "torch"
    precision: Precision = "float32"

    def settings(self, config: DecodingConfig) -> TranslatorSettings:
        """Return the settings that these options and the run's config give.

        Raises:
            ConfigError: The options do not fit together.
        """
        beam = self._beam(config)
        search = SearchSettings(
            beam,
            config.length_penalty if self.length_penalty is None else self.length_penalty,
            self.max_length or config.max_length,
            unknown=self.unknown,
            length_penalty_kind=self.length_penalty_kind or config.length_penalty_kind,
            stopping=self.stopping or config.stopping,
            min_length=self.min_length,
            no_repeat_ngram=self.no_repeat_ngram,
            repetition_penalty=self.repetition_penalty,
            sampling=self.sampling,
        )
        if search.max_length is not None and search.min_length >= search.max_length:
            raise ConfigError(
                f"--min-length {search.min_length} leaves no room below --max-length {search.max_length}, "
                "which counts the end mark too"
            )
        return TranslatorSettings(
            search=search,
            batch_tokens=self.batch_tokens or config.batch_tokens,
            batch_sentences=self.batch_sentences,
            max_source_length=self.max_source_length or config.max_source_length,
            long_lines=self.long_lines,
        )

    def _beam(self, config: DecodingConfig) -> int:
        if self.n_best > 1 and self.long_lines == "split":
            raise ConfigError("--n-best does not go with --long-lines split: parts are translated one by one; use cut or error")
        if self.sampling is not None:
            if self.beam is not None:
                raise ConfigError("--beam searches and --sample draws: give one of them (--n-best N draws N translations)")
            return self.n_best
        beam = self.beam or config.beam_size
        if self.n_best > beam:
            raise ConfigError(f"--n-best {self.n_best} needs a beam of that size or more, but it is {beam}; add --beam")
        return beam


def sampling_of(
    wanted: bool, *, temperature: float | None, top_k: int | None, top_p: float | None, seed: int | None
) -> Sampling | None:
    """Return how to draw, from the options of `nmt translate`; None: search.

    Raises:
        ConfigError: An option of sampling is given without `--sample`.
    """
    given: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    chosen = {name: value for name, value in given.items() if value is not None}
    if wanted:
        return dataclasses.replace(Sampling(), **chosen)
    if chosen:
        raise ConfigError(f"--{next(iter(chosen)).replace('_', '-')} says how to draw translations at random; add --sample")
    return None

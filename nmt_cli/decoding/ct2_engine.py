"""Decoding by an exported CTranslate2 model. No torch here.

CTranslate2 searches by the rules of `beam`, but it takes one limit for a whole batch, divides log-probabilities by lengths that
count the end mark, and counts prefixes nothing: all this is put right here. What remains is told in docs/guide.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from nmt_cli.config import Config
from nmt_cli.decoding.engine import Hypothesis, SearchSettings
from nmt_cli.errors import ConfigError, DataError, RunError
from nmt_cli.runs.exported import ExportRecord, import_ctranslate2, read_record
from nmt_cli.runs.folder import RunFolder
from nmt_cli.text.tokenizers import Tokenizer
from nmt_cli.text.vocab import BOS, EOS, PAD, SPECIALS, Vocabulary

MOST_WORKERS = 8
"""Workers on a CPU unless another number is asked for; more cores give each worker more threads."""
NO_PENALTY = 1e-30
"""Stands for an alpha of 0, at which CTranslate2 would go on after k hypotheses have ended, until the best one has as well."""
IMPOSSIBLE = -1e9
"""Log-probabilities below are those of tokens that were forbidden."""


@dataclass(frozen=True)
class _Sentence:
    """A sentence to translate: its place in the batch, its tokens, what its translation begins with, and the longest one."""

    index: int
    source: list[str]
    prefix: list[str]
    limit: int


class Ct2Engine:
    """Engine over a CTranslate2 model.

    Args:
        path: Folder of the model.
        source: Vocabulary of the source side.
        target: Vocabulary of the target side.
        max_positions: Longest source and longest translation, in tokens with the end mark.
        device: auto, cpu, cuda or cuda:N; auto is CUDA where CTranslate2 finds one.
        compute_type: float32, int8, or another that CTranslate2 has on the device; auto is the fastest of them.
        workers: How many batches are translated at once; None: as many as there are cores, at most 8, and one on a GPU.
        threads: Threads of each worker; None: the cores divided among the workers.

    Raises:
        ConfigError: CTranslate2 is not installed, or has no such device or compute type.
        RunError: The model cannot be read.
    """

    def __init__(
        self,
        path: Path,
        source: Vocabulary,
        target: Vocabulary,
        *,
        max_positions: int,
        device: str = "auto",
        compute_type: str = "float32",
        workers: int | None = None,
        threads: int | None = None,
    ) -> None:
        package = import_ctranslate2()
        kind, number = _choose_device(package, device)
        known = {"default", "auto", *package.get_supported_compute_types(kind, number)}
        if compute_type not in known:
            raise ConfigError(
                f"compute type: expected one that CTranslate2 has on {kind} here ({', '.join(sorted(known))}), "
                f"but is {compute_type!r}"
            )
        self.max_source_tokens: int | None = max_positions
        self.workers, threads = (workers or 1, threads or 1) if kind == "cuda" else _share_cores(workers, threads)
        self._max_positions = max_positions
        self._source, self._target = source.tokens(range(len(source))), target.tokens(range(len(target)))
        self._ids = {token: index for index, token in enumerate(self._target)}
        try:
            self._translator: Any = package.Translator(
                str(path),
                device=kind,
                device_index=number,
                compute_type=compute_type,
                inter_threads=self.workers,
                intra_threads=threads,
            )
        except (RuntimeError, ValueError) as error:
            raise RunError(f"{path}: CTranslate2 cannot read this model: {error}; export it again") from None

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
        lines: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """Translate one batch; see `Engine`.

        Raises:
            ConfigError: CTranslate2 cannot search like this.
            DataError: A prefix is longer than the model can take.
        """
        check_settings(settings)
        sentences = [
            self._sentence(index, source, prefix, settings)
            for index, (source, prefix) in enumerate(zip(sources, prefixes or [()] * len(sources), strict=True))
        ]
        found: dict[int, list[Hypothesis]] = {}
        for forced in (False, True):  # prefixes in a batch have side effects on those without one
            found |= self._translate([sentence for sentence in sentences if bool(sentence.prefix) == forced], settings)
        return [found[sentence.index] for sentence in sentences]

    def _sentence(self, index: int, source: Sequence[int], prefix: Sequence[int], settings: SearchSettings) -> _Sentence:
        limit = max(min(settings.limit(len(source) + 1), self._max_positions), len(prefix) + 1)
        if limit > self._max_positions:
            raise DataError(
                f"this model has positions for {self._max_positions} tokens, but a translation is to begin with "
                f"{len(prefix)} and an end mark; shorten the prefix"
            )
        tokens = [self._source[token] for token in (*source, EOS)]
        return _Sentence(index, tokens, [self._target[token] for token in prefix], limit)

    def _translate(self, sentences: list[_Sentence], settings: SearchSettings) -> dict[int, list[Hypothesis]]:
        """Return place -> hypotheses; first with the largest limit for all, then again what went on to its own limit."""
        if not sentences:
            return {}
        largest = max(sentence.limit for sentence in sentences)
        found = self._search(sentences, largest, settings)
        late = [
            sentence for sentence in sentences if sentence.limit < largest and _steps(found[sentence.index]) >= sentence.limit
        ]
        for limit, group in groupby(sorted(late, key=_limit), key=_limit):
            found |= self._search(list(group), limit, settings)
        return found

    def _search(self, sentences: list[_Sentence], limit: int, settings: SearchSettings) -> dict[int, list[Hypothesis]]:
        """Return place -> hypotheses of sentences with one limit."""
        results = self._translator.translate_batch(
            [sentence.source for sentence in sentences],
            [sentence.prefix for sentence in sentences] if sentences[0].prefix else None,
            beam_size=settings.beam_size,
            num_hypotheses=settings.beam_size,
            length_penalty=settings.length_penalty or NO_PENALTY,
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=min(settings.min_length, limit),
            no_repeat_ngram_size=settings.no_repeat_ngram,
            repetition_penalty=settings.repetition_penalty,
            disable_unk=not settings.unknown,
            suppress_sequences=[[SPECIALS[PAD]], [SPECIALS[BOS]]],
            return_scores=True,
            return_end_token=True,
        )
        return {
            sentence.index: self._hypotheses(result, begun, settings)
            for sentence, result, begun in zip(sentences, results, self._begun(sentences), strict=True)
        }

    def _begun(self, sentences: list[_Sentence]) -> list[float]:
        """Return the log-probability of each prefix: CTranslate2's search takes them as given and counts them nothing."""
        if not sentences[0].prefix:
            return [0.0] * len(sentences)
        sources, prefixes = [sentence.source for sentence in sentences], [sentence.prefix for sentence in sentences]
        scored = self._translator.score_batch(sources, prefixes, max_input_length=0)
        return [sum(result.log_probs[: len(prefix)]) for result, prefix in zip(scored, prefixes, strict=True)]

    def _hypotheses(self, result: Any, begun: float, settings: SearchSettings) -> list[Hypothesis]:
        """Return what CTranslate2 found for a sentence, best first by our scores.

        Args:
            result: Hypotheses with their end marks, and log-probability / length^alpha of each, the end mark counted.
            begun: Log-probability of the prefix.
            settings: alpha.
        """
        found = []
        for names, theirs in zip(result.hypotheses, result.scores, strict=True):
            tokens = tuple(self._ids[name] for name in names)
            log_probability = begun + theirs * len(tokens) ** settings.length_penalty
            ended = tokens[-1] == EOS
            words = tokens[:-1] if ended else tokens
            score = settings.score(log_probability, len(words))
            found.append(Hypothesis(words, log_probability, score, "eos" if ended else "limit"))
        possible = [hypothesis for hypothesis in found if hypothesis.log_probability > IMPOSSIBLE]
        return sorted(possible or found[:1], key=lambda hypothesis: -hypothesis.score)


def check_settings(settings: SearchSettings) -> None:
    """Refuse what CTranslate2 cannot do.

    Raises:
        ConfigError: With the names of the settings.
    """
    unable = {
        "stopping: exact": settings.stopping == "exact",
        "length_penalty_kind: gnmt": settings.length_penalty_kind == "gnmt",
        "sampling that can be repeated": settings.sampling is not None,
    }
    if names := [name for name, wanted in unable.items() if wanted]:
        raise ConfigError(f"CTranslate2 has no {', no '.join(names)}; leave it out, or translate with --engine torch")


def _limit(sentence: _Sentence) -> int:
    return sentence.limit


def _steps(hypotheses: Sequence[Hypothesis]) -> int:
    """Return how many steps a search took: until the last of the hypotheses ended."""
    return max(len(hypothesis.tokens) + (hypothesis.ended == "eos") for hypothesis in hypotheses)


def _choose_device(package: Any, name: str) -> tuple[str, int]:
    """Return kind and number of the device of an option; see `devices.choose_device`, which asks torch."""
    found = package.get_cuda_device_count()
    if name == "auto":
        return ("cuda" if found else "cpu"), 0
    kind, _, number = name.partition(":")
    if not re.fullmatch(r"cpu|cuda(:(0|[1-9][0-9]*))?", name, flags=re.ASCII):
        raise ConfigError(f"--device: expected auto, cpu, cuda or cuda:N for CTranslate2, but is {name!r}")
    if kind == "cuda" and int(number or 0) >= found:
        raise ConfigError(
            f"--device {name}: CTranslate2 {package.__version__} finds {found} CUDA devices on this machine; use --device cpu "
            "or auto"
        )
    return kind, int(number or 0)


def _share_cores(workers: int | None, threads: int | None) -> tuple[int, int]:
    """Return workers and threads of each, so that together they are as many as the cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = workers or (max(1, cores // threads) if threads else min(cores, MOST_WORKERS))
    return workers, threads or max(1, cores // workers)


@dataclass(frozen=True)
class Exported:
    """An exported model that is ready to translate: all of it comes from the folder of the export."""

    engine: Ct2Engine
    source: Tokenizer
    target: Tokenizer
    config: Config
    record: ExportRecord


def load_exported(
    path: Path,
    *,
    device: str = "auto",
    compute_type: str = "float32",
    workers: int | None = None,
    threads: int | None = None,
) -> Exported:
    """Load what `nmt export --to ctranslate2` wrote into `path`.

    Args:
        path: Folder of the export.
        device: See `Ct2Engine`.
        compute_type: See `Ct2Engine`.
        workers: See `Ct2Engine`.
        threads: See `Ct2Engine`.

    Raises:
        ConfigError: CTranslate2 is not installed, or has no such device or compute type.
        RunError: It is no such export, or it is damaged.
    """
    record, folder = read_record(path), RunFolder(path)
    config, (source, target) = folder.config(), folder.tokenizers()
    sizes = len(source.vocabulary), len(target.vocabulary)
    if sizes != (record.source_vocabulary, record.target_vocabulary):
        raise RunError(
            f"{path}: expected vocabularies of {record.source_vocabulary} and {record.target_vocabulary} tokens, but they have "
            f"{sizes[0]} and {sizes[1]}; the folder is damaged, export the model again"
        )
    engine = Ct2Engine(
        path,
        source.vocabulary,
        target.vocabulary,
        max_positions=record.max_positions,
        device=device,
        compute_type=compute_type,
        workers=workers,
        threads=threads,
    )
    return Exported(engine, source, target, config, record)

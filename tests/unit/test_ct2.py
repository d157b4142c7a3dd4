"""Export to CTranslate2 and the engine over it: the same translations as ours, in any kind of Transformer."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from nmt_cli.attention.positional import LearnedPositions
from nmt_cli.cli.export import run_export
from nmt_cli.config import Config
from nmt_cli.decoding.ct2_engine import Ct2Engine, Exported, _share_cores, check_settings, load_exported
from nmt_cli.decoding.engine import Hypothesis, Sampling, SearchSettings
from nmt_cli.decoding.torch_engine import TorchEngine
from nmt_cli.errors import ConfigError, DataError, NmtError, ResourceError, RunError
from nmt_cli.export.ctranslate2 import SINUSOIDAL_POSITIONS, export_ctranslate2
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.models.transformer import TransformerDecoder
from nmt_cli.runs.build import build_model
from nmt_cli.runs.exported import RECORD_FILE, find_export, in_place_path, read_record
from nmt_cli.runs.folder import RunFolder
from nmt_cli.runs.weights import WEIGHTS_FILE, weights_of
from nmt_cli.text.tokenizers import WordSettings, WordTokenizer
from nmt_cli.text.vocab import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

VARIANTS: dict[str, dict[str, Any]] = {
    "pre-norm": {"width": 12, "heads": 3, "encoder_layers": 2, "decoder_layers": 1},
    "post-norm with biases": {
        "width": 12, "heads": 2, "encoder_layers": 1, "decoder_layers": 2, "norm": "post", "attention_bias": True,
        "position_base": 1000.0,
    },
    "learned positions, tied output": {
        "width": 12, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "positions": "learned", "max_positions": 25,
        "tie_embeddings": "output",
    },
    "all tied, one head": {
        "width": 10, "heads": 1, "encoder_layers": 2, "decoder_layers": 2, "tie_embeddings": "all", "attention_bias": True,
    },
}  # fmt: skip
SOURCE_SIZE, TARGET_SIZE = 13, 40
SOURCES = [[random.Random(n).randrange(4, SOURCE_SIZE) for _ in range(1 + n % 9)] for n in range(8)]
CHECKPOINT = "update-00000005"


def tokenizer(letter: str, size: int) -> WordTokenizer:
    return WordTokenizer(Vocabulary([*SPECIALS, *(f"{letter}{index}" for index in range(4, size))]), WordSettings())


def make_run(
    path: Path, settings: dict[str, Any], change: Callable[[Seq2Seq], None] | None = None
) -> tuple[RunFolder, Seq2Seq]:
    """Write a run folder whose only checkpoint is a model with random weights, biases and norms; `change` comes last."""
    shared = settings.get("tie_embeddings") == "all"
    config = Config.model_validate(
        {
            "name": "toy",
            "data": {"source": "en", "target": "fr", "train": "/a.tsv"},
            "tokenizer": {"shared": shared},
            "model": {"type": "transformer", "feed_forward": 9, **settings},
            "training": {"max_updates": 5},
        }
    )
    target = tokenizer("t", TARGET_SIZE)
    source = target if shared else tokenizer("s", SOURCE_SIZE)
    model = build_model(
        config.model, source_size=len(source.vocabulary), target_size=TARGET_SIZE, random=RandomSource(1), seed=4
    )
    generator = torch.Generator().manual_seed(4)
    weight, bias = model.decoder.output_layer
    assert bias is not None
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        weight *= 4  # far from uniform, so that no two continuations tie
        if change is not None:
            change(model)
    folder = RunFolder(path)
    folder.write_manifest({"seed": 4})
    folder.write_config(config, {"data": {}})
    folder.write_tokenizers(source, target)
    names = {"best": CHECKPOINT, "last": CHECKPOINT}
    folder.write_checkpoint(CHECKPOINT, 5, lambda temporary: save_file(weights_of(model), temporary / WEIGHTS_FILE), {}, names)
    return folder, model.eval()


def without_control_symbols(model: Seq2Seq) -> None:
    """Make `<pad>`, `<unk>` and `<bos>` as improbable as can be.

    CTranslate2 divides the probabilities among the tokens that may come next, while ours are the model's own.
    """
    bias = model.decoder.output_layer[1]
    assert bias is not None
    bias[[PAD, UNK, BOS]] = -40.0


@dataclass(frozen=True)
class Both:
    """A run, its model, and the same model exported."""

    folder: RunFolder
    model: Seq2Seq
    exported: Path

    @property
    def ours(self) -> TorchEngine:
        return TorchEngine(self.model, torch.device("cpu"))

    def load(self, **options: Any) -> Exported:
        return load_exported(self.exported, **{"device": "cpu", "workers": 1, "threads": 1, **options})

    @property
    def theirs(self) -> Ct2Engine:
        return self.load().engine


def make_both(path: Path, settings: dict[str, Any], change: Callable[[Seq2Seq], None] | None = None) -> Both:
    folder, model = make_run(path / "run", settings, change)
    export_ctranslate2(folder, path / "exported", "best")
    return Both(folder, model, path / "exported")


@pytest.fixture(name="both", params=list(VARIANTS), scope="module")
def _both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return make_both(tmp_path_factory.mktemp("both"), VARIANTS[request.param], without_control_symbols)


@pytest.fixture(name="plain", scope="module")
def _plain(tmp_path_factory: pytest.TempPathFactory) -> Both:
    return make_both(tmp_path_factory.mktemp("plain"), VARIANTS["pre-norm"])


def assert_same(found: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    assert [(one.tokens, one.ended) for one in found] == [(one.tokens, one.ended) for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
        assert one.score == pytest.approx(other.score, abs=1e-4)


# -- the same as ours --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("size", [1, 4])
def test_both_engines_find_the_same(both: Both, size: int, alpha: float) -> None:
    settings = SearchSettings(size, alpha)
    for found, expected in zip(both.theirs.translate(SOURCES, settings), both.ours.translate(SOURCES, settings), strict=True):
        assert_same(found, expected)


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("max_length", [1, 4])
def test_both_engines_end_at_the_limit(both: Both, size: int, max_length: int) -> None:
    settings = SearchSettings(size, max_length=max_length)
    for found, expected in zip(both.theirs.translate(SOURCES, settings), both.ours.translate(SOURCES, settings), strict=True):
        assert_same(found, expected)


def test_an_export_knows_how_long_its_sentences_may_be(both: Both) -> None:
    table = both.folder.config().model.model_dump().get("max_positions")
    learned = both.model.max_positions is not None
    assert both.theirs.max_source_tokens == (table if learned else SINUSOIDAL_POSITIONS)
    assert read_record(both.exported).max_positions == both.theirs.max_source_tokens


def test_every_sentence_has_its_own_limit(tmp_path: Path) -> None:
    """None wants to end: in a batch as alone, each translation is as long as its own source allows."""

    def endless(model: Seq2Seq) -> None:
        without_control_symbols(model)
        bias = model.decoder.output_layer[1]
        assert bias is not None
        bias[EOS] -= 40.0

    both = make_both(tmp_path, VARIANTS["pre-norm"], endless)
    engine = both.theirs
    for size in (1, 3):
        settings = SearchSettings(size)
        for source, found, expected in zip(
            SOURCES, engine.translate(SOURCES, settings), both.ours.translate(SOURCES, settings), strict=True
        ):
            assert {len(hypothesis.tokens) for hypothesis in found} == {2 * (len(source) + 1) + 10}
            assert_same(found, expected)
            assert_same(found, engine.translate([source], settings)[0])


@pytest.mark.parametrize("size", [1, 4])
def test_the_batch_changes_nothing(plain: Both, size: int) -> None:
    engine, settings = plain.theirs, SearchSettings(size)
    together, turned = engine.translate(SOURCES, settings), engine.translate(SOURCES[::-1], settings)[::-1]
    for source, found, other in zip(SOURCES, together, turned, strict=True):
        assert_same(other, found)
        assert_same(engine.translate([source], settings)[0], found)


def test_a_model_that_would_rather_say_nothing(tmp_path: Path) -> None:
    """Empty translations have a score too, although CTranslate2 divides by their length."""

    def silent(model: Seq2Seq) -> None:
        without_control_symbols(model)
        bias = model.decoder.output_layer[1]
        assert bias is not None
        bias[EOS] += 4.0

    both = make_both(tmp_path, VARIANTS["pre-norm"], silent)
    for size in (1, 2, 4):
        for alpha in (0.0, 1.0):
            settings = SearchSettings(size, alpha)
            ours = both.ours.translate(SOURCES, settings)
            assert any(hypothesis.tokens == () for found in ours for hypothesis in found)
            for found, expected in zip(both.theirs.translate(SOURCES, settings), ours, strict=True):
                assert_same(found, expected)


def by_position(model: Seq2Seq) -> None:
    """Make a decoder in which the next token depends on nothing but how many there are already, by a table of probabilities."""
    decoder = model.decoder
    assert isinstance(decoder, TransformerDecoder)
    assert isinstance(decoder.embedder.positions, LearnedPositions)
    for name, parameter in decoder.named_parameters():
        if name.endswith(("output_layer.weight", "outer.weight", "outer.bias", "embedding.weight", "norm.bias", "output.bias")):
            parameter.zero_()
        elif name.endswith("norm.weight"):
            parameter.fill_(1.0)
    positions = decoder.embedder.positions.table.weight
    positions.copy_(torch.eye(*positions.shape))
    wanted = torch.full((3, TARGET_SIZE), 1e-6)
    wanted[0, [7, EOS]] = torch.tensor([0.7, 0.3])
    wanted[1, [8, EOS]] = torch.tensor([0.9, 0.1])
    wanted[2, EOS] = 1.0
    decoder.output.weight.copy_(torch.linalg.lstsq(decoder.norm(positions[:3]), wanted.log()).solution.T)


def test_without_a_length_penalty_the_beam_is_full_when_it_is_full(tmp_path: Path) -> None:
    """CTranslate2 would go on until the best hypothesis, 7 8, has ended too; by our rules two that have ended are enough."""
    learned = {"width": 12, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "positions": "learned", "max_positions": 9}
    both = make_both(tmp_path, learned, by_position)
    [found] = both.theirs.translate([[4, 5]], SearchSettings(2, 0.0))
    assert [hypothesis.tokens for hypothesis in found] == [(), (7,)]
    assert [math.exp(hypothesis.score) for hypothesis in found] == pytest.approx([0.3, 0.7 * 0.1], rel=1e-3)
    assert_same(found, both.ours.translate([[4, 5]], SearchSettings(2, 0.0))[0])


# -- constraints, against the rules in plain Python --------------------------------------------------------------------


def log_probabilities(
    model: Seq2Seq, source: Sequence[int], prefixes: Sequence[Sequence[int]], settings: SearchSettings
) -> list[list[float]]:
    """Return what may follow each prefix, all of one length, with probabilities that sum to one over what is allowed."""
    step, size = len(prefixes[0]) + 1, settings.no_repeat_ngram
    ids = torch.tensor([[*source, EOS]] * len(prefixes))
    with torch.inference_mode():
        output = model(ids, ids > 0, torch.tensor([[BOS, *prefix] for prefix in prefixes]))
        logits = model.decoder.project(output.hidden[:, -1]).double().numpy()
    for row, prefix in zip(logits, prefixes, strict=True):
        held = sorted(set(prefix))
        row[held] = np.where(row[held] > 0, row[held] / settings.repetition_penalty, row[held] * settings.repetition_penalty)
        row[[PAD, BOS] if settings.unknown else [PAD, BOS, UNK]] = -np.inf
        if step <= settings.min_length:
            row[EOS] = -np.inf
        ngrams = [tuple(prefix[start : start + size]) for start in range(len(prefix) - size + 1)] if size else []
        row[[ngram[-1] for ngram in ngrams if ngram[:-1] == tuple(prefix[len(prefix) - size + 1 :])]] = -np.inf
    normalised: list[list[float]] = (logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)).tolist()
    return normalised


def twin(model: Seq2Seq, source: Sequence[int], settings: SearchSettings, prefix: Sequence[int] = ()) -> list[Hypothesis]:
    """The rules of docs/guide.md, one sentence at a time, with lists, but for two of CTranslate2's own.

    A prefix is given, and so has no part in the search; and where more than k have ended, those of the worst score are left out
    by a length that counts the end mark.
    """
    limit, size = max(settings.limit(len(source) + 1), len(prefix) + 1), settings.beam_size
    live: list[tuple[tuple[int, ...], float]] = [(tuple(prefix), 0.0)]
    finished: list[Hypothesis] = []
    for step in range(len(prefix) + 1, limit + 1):
        rows = log_probabilities(model, source, [tokens for tokens, _ in live], settings)
        continued = [
            (total + value, tokens, word)
            for (tokens, total), row in zip(live, rows, strict=True)
            for word, value in enumerate(row)
            if value > -math.inf
        ]
        best = sorted(continued, reverse=True)[: 2 * size]
        for total, tokens, word in best[:size]:
            if word == EOS or step == limit:
                whole = tokens if word == EOS else (*tokens, word)
                finished.append(Hypothesis(whole, total, settings.score(total, len(whole)), "eos" if word == EOS else "limit"))
        live = [((*tokens, word), total) for total, tokens, word in best if word != EOS][:size]
        if len(finished) >= size:
            break
    finished.sort(key=lambda one: -settings.score(one.log_probability, len(one.tokens) + (one.ended == "eos")))
    return sorted(finished[:size], key=lambda hypothesis: -hypothesis.score)


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize(
    "constraint",
    [
        {},
        {"unknown": True},
        {"min_length": 6},
        {"min_length": 40},
        {"no_repeat_ngram": 1},
        {"no_repeat_ngram": 2, "max_length": 14},
        {"repetition_penalty": 1.7},
        {"min_length": 4, "no_repeat_ngram": 3, "repetition_penalty": 1.2, "length_penalty": 0.0, "max_length": 14},
    ],
    ids=str,
)
def test_constraints_are_obeyed(plain: Both, size: int, constraint: dict[str, Any]) -> None:
    settings = SearchSettings(**{"beam_size": size, "max_length": 10, **constraint})
    for source, found in zip(SOURCES, plain.theirs.translate(SOURCES, settings), strict=True):
        assert_same(found, twin(plain.model, source, settings))


@pytest.mark.parametrize("size", [1, 4])
def test_translations_begin_with_their_prefixes(plain: Both, size: int) -> None:
    """Those without one are as they would be alone; the log-probability counts the prefix too."""
    prefixes = [[(), (5,), (7, 30, 8), (6, UNK, 6, 6)][index % 4] for index in range(len(SOURCES))]
    settings = SearchSettings(size, max_length=9, min_length=5)
    for source, prefix, found in zip(
        SOURCES, prefixes, plain.theirs.translate(SOURCES, settings, prefixes=prefixes), strict=True
    ):
        expected = twin(plain.model, source, settings, prefix)
        begun = sum(
            float(np.array(raw)[token])
            for raw, token in zip(raw_log_probabilities(plain.model, source, prefix), prefix, strict=True)
        )
        counted = [
            Hypothesis(
                one.tokens, one.log_probability + begun, settings.score(one.log_probability + begun, len(one.tokens)), one.ended
            )
            for one in expected
        ]
        assert_same(found, sorted(counted, key=lambda hypothesis: -hypothesis.score))


def raw_log_probabilities(model: Seq2Seq, source: Sequence[int], target: Sequence[int]) -> list[list[float]]:
    """Return the model's own log-probabilities at each token of a target."""
    ids = torch.tensor([[*source, EOS]])
    with torch.inference_mode():
        output = model(ids, ids > 0, torch.tensor([[BOS, *target]]))
        rows: list[list[float]] = model.decoder.project(output.hidden[0]).double().log_softmax(dim=1).tolist()
    return rows[: len(target)]


def test_a_long_prefix_leaves_room_for_one_token(plain: Both) -> None:
    prefix = [5, 6, 7, 8, 9]
    [[found]] = plain.theirs.translate([[4, 5]], SearchSettings(1, max_length=3), prefixes=[prefix])
    assert list(found.tokens[:5]) == prefix
    assert len(found.tokens) <= 6
    with pytest.raises(DataError, match="positions for 4096 tokens, but a translation is to begin with 4096"):
        plain.theirs.translate([[4, 5]], SearchSettings(1), prefixes=[[5] * 4096])


@pytest.mark.parametrize("size", [1, 4])
def test_no_control_symbol_comes_out(tmp_path: Path, size: int) -> None:
    def control_symbols(model: Seq2Seq) -> None:
        bias = model.decoder.output_layer[1]
        assert bias is not None
        bias[[PAD, UNK, BOS]] += 40.0  # what the model wants most

    engine = make_both(tmp_path, VARIANTS["pre-norm"], control_symbols).theirs
    for hypotheses in engine.translate(SOURCES, SearchSettings(size, max_length=8)):
        assert hypotheses
        assert all(EOS < token < TARGET_SIZE for hypothesis in hypotheses for token in hypothesis.tokens)
    [[found]] = engine.translate([[4]], SearchSettings(1, max_length=8, unknown=True))
    assert set(found.tokens) == {UNK}


# -- what cannot be done -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (SearchSettings(stopping="exact"), "no stopping: exact;"),
        (SearchSettings(length_penalty_kind="gnmt", stopping="exact"), "no stopping: exact, no length_penalty_kind: gnmt;"),
        (SearchSettings(sampling=Sampling()), "no sampling"),
    ],
)
def test_searches_of_another_kind_are_refused(plain: Both, settings: SearchSettings, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_settings(settings)
    with pytest.raises(ConfigError, match="translate with --engine torch"):
        plain.theirs.translate(SOURCES, settings)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compute_type": "int7"}, "compute type: expected .*float32.*, but is 'int7'"),
        ({"device": "mps"}, "--device: expected auto, cpu, cuda or cuda:N for CTranslate2, but is 'mps'"),
        ({"device": "cuda:7"}, r"--device cuda:7: CTranslate2 \S+ finds \d CUDA devices"),
    ],
)
def test_what_is_not_there_is_refused(plain: Both, options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plain.load(**options)


def test_a_missing_package_says_what_to_install(plain: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    for action in (plain.load, lambda: export_ctranslate2(plain.folder, tmp_path / "out", "best")):
        with pytest.raises(ConfigError, match=r"pip install 'nmt-cli\[ctranslate2\]'"):
            action()


def test_a_recurrent_model_is_refused(plain: Both, tmp_path: Path) -> None:
    folder, _ = make_run(tmp_path / "run", VARIANTS["pre-norm"])
    config = folder.config().model_dump()
    folder.write_config(Config.model_validate({**config, "model": {"type": "seq2seq", "hidden_size": 8}}), {"data": {}})
    with pytest.raises(ConfigError, match=r"expected model\.type: transformer.* model\.type: seq2seq"):
        export_ctranslate2(folder, tmp_path / "out", "best")
    assert not (tmp_path / "out").exists()


def test_workers_and_threads_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(32)))
    assert _share_cores(None, None) == (8, 4)
    assert _share_cores(2, None) == (2, 16)
    assert _share_cores(None, 16) == (2, 16)
    assert _share_cores(64, None) == (64, 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    assert _share_cores(None, None) == (2, 1)


# -- loading -----------------------------------------------------------------------------------------------------------


def test_an_export_needs_neither_its_run_nor_torch(tmp_path: Path) -> None:
    both = make_both(tmp_path, VARIANTS["post-norm with biases"])
    expected = both.theirs.translate([[4, 5, 6]], SearchSettings(3))[0][0]
    os.rename(both.exported, tmp_path / "moved")
    code = (
        "import sys, pathlib\n"
        "from nmt_cli.decoding.ct2_engine import load_exported\n"
        "from nmt_cli.decoding.engine import SearchSettings\n"
        "from nmt_cli.decoding.translator import Translator, TranslatorSettings\n"
        "found = load_exported(pathlib.Path(sys.argv[1]), device='cpu', workers=1, threads=1)\n"
        "settings = TranslatorSettings(SearchSettings(3))\n"
        "print(*Translator(found.engine, found.source, found.target, settings).translate(['s4 s5 s6', '']), sep='|')\n"
        "assert 'torch' not in sys.modules, 'torch'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "moved"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout == f"{' '.join(f't{token}' for token in expected.tokens)}|\n"


def test_int8_is_computed_from_the_same_export(plain: Both) -> None:
    exact, rough = (plain.load(compute_type=name).engine.translate(SOURCES, SearchSettings(1)) for name in ("float32", "int8"))
    for one, other in zip(exact, rough, strict=True):
        assert all(EOS < token < TARGET_SIZE for token in other[0].tokens)
        assert one[0].log_probability != other[0].log_probability


def test_several_batches_at_once(plain: Both) -> None:
    engine = plain.load(workers=2).engine
    assert engine.workers == 2
    settings = SearchSettings(3)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda source: engine.translate([source], settings)[0], SOURCES))
    for source, hypotheses in zip(SOURCES, found, strict=True):
        assert_same(hypotheses, engine.translate([source], settings)[0])


def damage_model(path: Path) -> None:
    (path / "model.bin").write_bytes((path / "model.bin").read_bytes()[:100])


def newer_format(path: Path) -> None:
    (path / RECORD_FILE).write_text(json.dumps({**json.loads((path / RECORD_FILE).read_text()), "format": 99}))


def other_vocabulary(path: Path) -> None:
    with open(path / "tokenizer" / "source.vocab", "a", encoding="utf-8") as stream:
        stream.write("more\n")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_model, "CTranslate2 cannot read this model: .*; export it again"),
        (newer_format, r"made by a newer nmt \(format 99, this one reads up to 1\)"),
        (other_vocabulary, "expected vocabularies of 13 and 40 tokens, but they have 14 and 40"),
        (lambda path: (path / RECORD_FILE).write_text('{"format": 1}'), "export.json: this file is damaged"),
        (lambda path: (path / RECORD_FILE).unlink(), "expected a model as `nmt export` writes it, but there is no export.json"),
    ],
)
def test_a_damaged_export_is_refused(damage: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    both = make_both(tmp_path, VARIANTS["pre-norm"])
    damage(both.exported)
    with pytest.raises(RunError, match=words):
        both.load()


# -- writing -----------------------------------------------------------------------------------------------------------


def names_in(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_an_export_holds_what_translating_needs(plain: Both) -> None:
    assert names_in(plain.exported) == [
        "config.json", "config.yaml", "export.json", "model.bin", "source_vocabulary.json", "target_vocabulary.json",
        "tokenizer",
    ]  # fmt: skip
    assert names_in(plain.exported / "tokenizer") == ["source.json", "source.vocab", "target.json", "target.vocab"]
    assert all(path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644) for path in plain.exported.rglob("*"))
    record = read_record(plain.exported)
    assert (record.engine, record.checkpoint, record.update) == ("ctranslate2", CHECKPOINT, 5)
    assert record.sha256 == plain.folder.index().checkpoints[CHECKPOINT].sha256[WEIGHTS_FILE]


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, ResourceError), (errno.EIO, RunError)])
@pytest.mark.parametrize("earlier", [True, False])
def test_an_export_is_whole_or_absent(
    number: int, kind: type[NmtError], earlier: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = make_run(tmp_path / "run", VARIANTS["pre-norm"])
    out = tmp_path / "out" / "model"
    if earlier:
        export_ctranslate2(folder, out, "best")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    monkeypatch.setattr(os, "fsync", lambda handle: _fail(number))
    with pytest.raises(kind, match="cannot write"):
        export_ctranslate2(folder, out, "best")
    assert names_in(out.parent) == (["model"] if earlier else [])
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def _fail(number: int) -> None:
    raise OSError(number, os.strerror(number))


def test_an_earlier_export_is_replaced_and_a_link_stays(tmp_path: Path) -> None:
    folder, _ = make_run(tmp_path / "run", VARIANTS["pre-norm"])
    export_ctranslate2(folder, tmp_path / "out", "best")
    inode = (tmp_path / "out" / "model.bin").stat().st_ino
    (tmp_path / "link").symlink_to("out")
    export_ctranslate2(folder, tmp_path / "link", "5")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "out" / "model.bin").stat().st_ino != inode
    assert names_in(tmp_path) == ["link", "out", "run"]


def test_what_is_not_an_export_of_ours_is_never_replaced(tmp_path: Path) -> None:
    folder, _ = make_run(tmp_path / "run", VARIANTS["pre-norm"])
    (tmp_path / "file").write_text("mine")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "model.bin").write_text("mine")
    export_ctranslate2(folder, tmp_path / "mixed", "best")
    (tmp_path / "mixed" / "notes.txt").write_text("mine")
    for name, words in {
        "file": "but it is a file",
        "theirs": "but it holds model.bin, which `nmt export` did not write",
        "mixed": "but it holds notes.txt,",
        "run": "but it holds checkpoints, config.yaml, manifest.json, requested.yaml, tokenizer,",
    }.items():
        with pytest.raises(ConfigError, match=f"expected a new .*{words}"):
            export_ctranslate2(folder, tmp_path / name, "best")
    assert (tmp_path / "mixed" / "notes.txt").read_text() == "mine"


# -- in the run folder -------------------------------------------------------------------------------------------------


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "run", VARIANTS["pre-norm"])[0]


def test_a_run_finds_its_own_export(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RunError, match=r"no export to CTranslate2 yet; make one with `nmt export \S+ --to ctranslate2 --in"):
        find_export(run, "best")
    run_export(run.path, "ctranslate2", out=None, checkpoint="best", in_place=True)
    assert find_export(run, "best") == find_export(run, "5") == in_place_path(run)
    assert load_exported(in_place_path(run), device="cpu", workers=1, threads=1).engine.workers == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert f"{in_place_path(run)}: {CHECKPOINT} for ctranslate2, " in output.err


def test_an_export_of_another_checkpoint_is_not_taken_for_this_one(run: RunFolder) -> None:
    run_export(run.path, "ctranslate2", out=None, checkpoint="best", in_place=True)

    def write_another(temporary: Path) -> None:
        (temporary / WEIGHTS_FILE).write_bytes(b"other")

    run.write_checkpoint("update-00000009", 9, write_another, {}, {"best": "update-00000009"})
    with pytest.raises(RunError, match=rf"of checkpoint best \(update-00000009\), but it is one of {CHECKPOINT}; renew"):
        find_export(run, "best")
    assert find_export(run, "5") == in_place_path(run)


def test_starting_anew_removes_the_export_and_nothing_else(run: RunFolder) -> None:
    run_export(run.path, "ctranslate2", out=None, checkpoint="best", in_place=True)
    (run.path / "export" / "mine").write_text("mine")
    run.clear()
    assert names_in(run.path) == ["export"]
    assert names_in(run.path / "export") == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"to": "ctranslate"}, "--to: expected ctranslate2, but is 'ctranslate'; did you mean 'ctranslate2'?"),
        ({"in_place": False}, "expected --out DIR or --in-place"),
        ({"out": Path("x")}, "expected --out DIR or --in-place"),
    ],
)
def test_options_of_the_command_have_to_fit(run: RunFolder, arguments: dict[str, Any], words: str) -> None:
    options = {"to": "ctranslate2", "out": None, "checkpoint": "best", "in_place": True, **arguments}
    with pytest.raises(ConfigError) as caught:
        run_export(run.path, options.pop("to"), **options)
    assert words in str(caught.value)
    assert not (run.path / "export").exists()

"""Configs: what is accepted, what is refused and in which words, `--set`, paths, and the way back to YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt_cli.config import Config, Files, Seq2SeqConfig, TransformerConfig
from nmt_cli.config_file import differences, dump_config, dump_yaml, load_config, parse_config, parse_tree
from nmt_cli.errors import ConfigError

BASE = """\
data:
  source: en
  target: fr
  train: a.tsv
model:
  type: seq2seq
  hidden_size: 8
training:
  max_updates: 5
"""


def loaded(folder: Path, text: str, *overrides: str) -> Config:
    path = folder / "toy.yaml"
    path.write_bytes(text.encode())
    return load_config(path, overrides).config


def refused(folder: Path, text: str, *overrides: str) -> list[str]:
    """Return the lines of the message, with the config's own path shortened to its name."""
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, *overrides)
    return str(caught.value).replace(f"{folder}/", "").split("\n")


# -- numbers and texts (PB-24) -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-4", 1e-4),
        ("1e-04", 1e-4),
        ("1E-4", 1e-4),
        ("+1e-4", 1e-4),
        ("1.0e-4", 1e-4),
        (".0001", 1e-4),
        ("'1e-4'", 1e-4),
        ('"0.0001"', 1e-4),
        ("2", 2.0),
        ("2.", 2.0),
        ("010", 10.0),
    ],
)
@pytest.mark.fault("PB-24")
def test_every_way_to_write_a_number_is_a_number(written: str, value: float, tmp_path: Path) -> None:
    rate = loaded(tmp_path, f"{BASE}  learning_rate: {written}\n").training.learning_rate
    assert isinstance(rate, float)
    assert rate == value


@pytest.mark.parametrize(
    ("written", "value"), [("32", 32), ('"32"', 32), ("032", 32), ("32.0", 32), ("1e3", 1000), ("'010'", 10), ("+7", 7)]
)
@pytest.mark.fault("PB-24")
def test_every_way_to_write_a_whole_number_is_one(written: str, value: int, tmp_path: Path) -> None:
    size = loaded(tmp_path, f"{BASE}  batch_sentences: {written}\n").training.batch_sentences
    assert isinstance(size, int)
    assert size == value


@pytest.mark.parametrize(
    ("key", "written", "message"),
    [
        ("max_epochs", "many", "expected a whole number, but is 'many'"),
        ("max_epochs", "3.5", "expected a whole number, but is 3.5"),
        ("max_epochs", "3:20", "expected a whole number, but is '3:20'"),  # PyYAML's 1.1 reads 200
        ("max_epochs", "0x10", "expected a whole number, but is '0x10'"),
        ("max_epochs", "true", "expected a number, but is true"),
        ("max_epochs", "0", "expected greater than or equal to 1, but is 0"),
        ("max_epochs", "[3]", "expected a whole number, but is [3]"),
        ("seed", "-1", "expected greater than or equal to 0, but is -1"),
        ("seed", "false", "expected a number, but is false"),
        ("learning_rate", "true", "expected a number, but is true"),
        ("learning_rate", "fast", "expected a number, but is 'fast'"),
        ("learning_rate", "0", "expected greater than 0, but is 0"),
        ("learning_rate", ".inf", "expected a finite number, but is inf"),
        ("learning_rate", "{a: 1}", "expected a number, but is {'a': 1}"),
        ("label_smoothing", "1.5", "expected less than 1, but is 1.5"),
        ("label_smoothing", "-.1", "expected greater than or equal to 0, but is -0.1"),
        ("adam_betas", "0.9", "expected a list, but is 0.9"),
        ("early_stopping", "loss", "expected a section with keys of its own, but is 'loss'"),
    ],
)
@pytest.mark.fault("PB-24")
def test_wrong_values_name_file_line_key_type_and_value(key: str, written: str, message: str, tmp_path: Path) -> None:
    assert refused(tmp_path, f"{BASE}  {key}: {written}\n") == [f"toy.yaml:10: training.{key}: {message}"]


def test_not_a_number_is_refused(tmp_path: Path) -> None:
    [line] = refused(tmp_path, f"{BASE}  learning_rate: .nan\n")
    assert line.startswith("toy.yaml:10: training.learning_rate: expected ")
    assert line.endswith("but is nan")


def test_dropout_beyond_one_is_refused(tmp_path: Path) -> None:
    text = BASE.replace("hidden_size: 8", "dropout: 1.5")
    assert refused(tmp_path, text) == ["toy.yaml:7: model.dropout: expected less than 1, but is 1.5"]


@pytest.mark.parametrize("code", ["no", "on", "y", "off", "yes", "NO"])
@pytest.mark.fault("PB-24")
def test_words_that_yaml_1_1_takes_for_booleans_are_text(code: str, tmp_path: Path) -> None:
    assert loaded(tmp_path, BASE.replace("source: en", f"source: {code}")).data.source == code


@pytest.mark.parametrize(("written", "name"), [("2024-01-31", "2024-01-31"), ("12", "12"), ("1.5", "1.5"), ("010", "010")])
def test_a_name_is_text_whatever_it_looks_like(written: str, name: str, tmp_path: Path) -> None:
    assert loaded(tmp_path, f"name: {written}\n{BASE}").name == name


@pytest.mark.parametrize(("written", "value"), [("true", True), ("True", True), ("FALSE", False), ("no", False), ("yes", True)])
def test_booleans(written: str, value: bool, tmp_path: Path) -> None:
    assert loaded(tmp_path, f"{BASE}tokenizer: {{lowercase: {written}}}\n").tokenizer.lowercase is value


def test_a_boolean_that_is_none_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, f"{BASE}tokenizer:\n  shared: maybe\n") == [
        "toy.yaml:11: tokenizer.shared: expected true or false, but is 'maybe'"
    ]


@pytest.mark.parametrize("written", ["~", "null", "", "Null"])
def test_nothing_is_none(written: str, tmp_path: Path) -> None:
    assert loaded(tmp_path, f"{BASE}  clip_norm: {written}\n").training.clip_norm is None


# -- keys (PB-25) ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{BASE}  learning_rte: 0.1\n", "10: training.learning_rte: unknown key; did you mean 'learning_rate'?"),
        (f"{BASE}  hidden_size: 3\n", "10: training.hidden_size: unknown key; it belongs in section 'model'"),
        (f"{BASE}  beam_size: 3\n", "10: training.beam_size: unknown key; it belongs in section 'decoding'"),
        (f"{BASE}learning_rate: 3\n", "10: learning_rate: unknown key; it belongs in section 'training'"),
        (f"{BASE}decodng: {{}}\n", "10: decodng: unknown key; did you mean 'decoding'?"),
        (f"{BASE}  early_stopping:\n    patince: 3\n",
         "11: training.early_stopping.patince: unknown key; did you mean 'patience'?"),
        (f"{BASE}  max_updates: 6\n", "10: training.max_updates: is given twice, first in line 9; remove one"),
        (f"{BASE}model: {{type: seq2seq}}\n", "10: model: is given twice, first in line 5; remove one"),
        (
            BASE.replace("hidden_size: 8", "heads: 2"),
            "7: model.heads: unknown key of a seq2seq model; it belongs to model.type: transformer",
        ),
        (
            BASE.replace("seq2seq", "transformer"),
            "7: model.hidden_size: unknown key of a transformer model; it belongs to model.type: seq2seq",
        ),
        (BASE.replace("hidden_size", "hiden_size"), "7: model.hiden_size: unknown key; did you mean 'hidden_size'?"),
        (BASE.replace("seq2seq", "seq2sek"),
         "6: model.type: expected 'seq2seq' or 'transformer', but is 'seq2sek'; did you mean 'seq2seq'?"),
        (f"{BASE}tokenizer:\n  type: wrd\n",
         "11: tokenizer.type: expected 'word', 'char' or 'sentencepiece', but is 'wrd'; did you mean 'word'?"),
        (BASE.replace("  type: seq2seq\n", ""), "5: model.type: is required (seq2seq or transformer), but is not given"),
        (BASE.replace("  target: fr\n", ""), "1: data.target: is required, but is not given"),
    ],
)  # fmt: skip
@pytest.mark.fault("PB-25")
def test_wrong_keys_and_choices_name_their_place_and_the_nearest(text: str, message: str, tmp_path: Path) -> None:
    assert refused(tmp_path, text) == [f"toy.yaml:{message}"]


@pytest.mark.fault("PB-25")
def test_a_key_of_another_section_is_not_taken_for_a_misspelt_one(tmp_path: Path) -> None:
    # `beam_size` is near, but `hidden_size` is a key: it stands in the wrong section
    assert refused(tmp_path, f"{BASE}decoding: {{hidden_size: 3}}\n") == [
        "toy.yaml:10: decoding.hidden_size: unknown key; it belongs in section 'model'"
    ]


def test_a_key_without_a_near_one_lists_those_that_are_known(tmp_path: Path) -> None:
    [line] = refused(tmp_path, f"{BASE}decoding:\n  zzz: 1\n")
    assert line.startswith("toy.yaml:11: decoding.zzz: unknown key; known keys: batch_tokens, beam_size, ")


def test_an_unknown_metric_is_refused(tmp_path: Path) -> None:
    [line] = refused(tmp_path, f"{BASE}evaluation:\n  metrics: [bleu, crf]\n")
    assert line.startswith("toy.yaml:11: evaluation.metrics.1: expected 'bleu', ")
    assert line.endswith("but is 'crf'; did you mean 'chrf'?")


@pytest.mark.fault("PB-25")
def test_all_mistakes_come_at_once(tmp_path: Path) -> None:
    text = (
        BASE.replace("hidden_size: 8", "heads: 8")
        + "  max_updates: many\n  learning_rte: 1\n"
        + "tokenizer: {vocab_size: 3}\nlog_every: 3\n"
    )
    lines = refused(tmp_path, text, "training.seed=x", "decoding.beam_size=true")
    starts = [
        "toy.yaml:7: model.heads: ",
        "toy.yaml:10: training.max_updates: is given twice",
        "toy.yaml:10: training.max_updates: expected a whole number",
        "toy.yaml:11: training.learning_rte: ",
        "toy.yaml:12: tokenizer.vocab_size: expected greater than or equal to 5, but is 3",
        "toy.yaml:13: log_every: ",
        "--set training.seed=x: training.seed: expected a whole number, but is 'x'",
        "--set decoding.beam_size=true: decoding.beam_size: expected a number, but is true",
    ]
    assert len(lines) == len(starts)
    for start in starts:
        assert sum(line.startswith(start) for line in lines) == 1, start


def test_an_empty_file_lacks_the_required_sections(tmp_path: Path) -> None:
    assert refused(tmp_path, "# nothing\n") == [
        f"toy.yaml: {key}: is required, but is not given" for key in ("data", "model", "training")
    ]


# -- files that are not configs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("a: b: c\n", "toy.yaml:1:5: this is not valid YAML"),
        ("data:\n\tsource: en\n", "toy.yaml:2:1: this is not valid YAML"),
        ("a: [1\n", "toy.yaml:2:1: this is not valid YAML"),
        ("- a\n", "toy.yaml: expected sections (data, model, training, …), but found ['a']"),
        ("word\n", "toy.yaml: expected sections (data, model, training, …), but found 'word'"),
        ("x: &a [*a]\n", "toy.yaml:1: nested more than 20 levels deep"),
        ("x: !!python/name:os.getcwd\n", "toy.yaml:1:4: this is not valid YAML"),
        ("a: 1\n---\nb: 2\n", "toy.yaml:2:1: this is not valid YAML"),
    ],
)
def test_broken_files_are_one_line_with_their_place(text: str, start: str, tmp_path: Path) -> None:
    [line] = refused(tmp_path, text)
    assert line.startswith(start)


@pytest.mark.parametrize("character", ["\x00", "\x07", "\ufffe"])
def test_control_characters_are_a_message_too(character: str, tmp_path: Path) -> None:
    assert refused(tmp_path, f"{BASE}name: a{character}b\n")[0].startswith("toy.yaml")


@pytest.mark.parametrize("value", ["!!int abc", "!!float abc", "!!bool maybe", "!!timestamp x"])
def test_a_value_that_is_not_what_its_tag_says_is_a_message_too(value: str, tmp_path: Path) -> None:
    assert refused(tmp_path, f"{BASE}  seed: {value}\n")[0].startswith("toy.yaml:10")


def test_other_encodings_and_missing_files_are_messages(tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ConfigError, match=r"toy\.yaml: expected UTF-8 text, but byte 9 is not"):
        load_config(path)
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot read this config file: No such file"):
        load_config(tmp_path / "none.yaml")


def test_windows_files_with_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    assert loaded(tmp_path, "\ufeff" + BASE.replace("\n", "\r\n")) == loaded(tmp_path, BASE)


def test_merge_keys_may_be_written_over(tmp_path: Path) -> None:
    text = BASE.replace("model:\n", "model: &model\n").replace("training:", "training:\n  <<: {max_updates: 4, seed: 9}")
    training = loaded(tmp_path, text).training
    assert (training.max_updates, training.seed) == (5, 9)


# -- --set -------------------------------------------------------------------------------------------------------------


def test_set_wins_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    config = loaded(
        tmp_path, f"{BASE}  seed: 4\n  log_every: 7\n", "training.seed=3", "training.seed=010", "decoding.beam_size=2"
    )
    assert (config.training.seed, config.training.log_every, config.training.validate_every) == (10, 7, 500)
    assert config.decoding.beam_size == 2


@pytest.mark.parametrize(
    ("override", "seen"),
    [
        ("training.learning_rate=1e-4", 1e-4),
        ("training.clip_norm=", None),
        ("training.early_stopping.metric=bleu", "bleu"),
        ("training.early_stopping={metric: bleu, patience: 2}", "bleu"),
        ("name=a=b", "a=b"),
    ],
)
def test_values_of_set_are_yaml(override: str, seen: object, tmp_path: Path) -> None:
    value: object = loaded(tmp_path, f"{BASE}", "data.valid=v.tsv", override)
    for key in (*override.partition("=")[0].split("."), "metric"):
        value = getattr(value, key, value)
    assert value == seen


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.seed", "expected section.key=value, for example --set training.seed=2"),
        ("=3", "expected section.key=value, for example --set training.seed=2"),
        ("training..seed=3", "expected section.key=value, for example --set training.seed=2"),
        (".seed=3", "expected section.key=value, for example --set training.seed=2"),
        ("training.max_updates.x=3", "max_updates is 5, which has no keys below it"),
        ("training.seed=many", "training.seed: expected a whole number, but is 'many'"),
        ("training.sede=3", "training.sede: unknown key; did you mean 'seed'?"),
        ("decoding.clip_norm=3", "decoding.clip_norm: unknown key; it belongs in section 'training'"),
        ("trainig.seed=3", "trainig: unknown key; did you mean 'training'?"),
        ("model.heads=3", "model.heads: unknown key of a seq2seq model; it belongs to model.type: transformer"),
        ("training=5", "training: expected a section with keys of its own, but is 5"),
    ],
)
def test_each_mistake_in_set_names_the_option(override: str, message: str, tmp_path: Path) -> None:
    assert refused(tmp_path, BASE, override) == [f"--set {override}: {message}"]


def test_set_with_broken_yaml_names_the_key(tmp_path: Path) -> None:
    [line] = refused(tmp_path, BASE, "training.seed=[1")
    assert line.startswith("--set training.seed")
    assert "not valid YAML" in line


@pytest.mark.fault("PB-25")
def test_a_key_given_twice_inside_set_is_refused(tmp_path: Path) -> None:
    [line] = refused(tmp_path, BASE, "training.early_stopping={min_delta: 1, min_delta: 2}")
    assert line.startswith("--set training.early_stopping")
    assert "given twice" in line


def test_a_mistake_inside_a_whole_section_in_set_names_the_option(tmp_path: Path) -> None:
    override = "model={type: seq2seq, hidden_size: wide}"
    assert refused(tmp_path, BASE, override) == [f"--set {override}: model.hidden_size: expected a whole number, but is 'wide'"]


# -- names and paths ---------------------------------------------------------------------------------------------------


def test_the_name_is_the_stem_of_the_file_unless_given(tmp_path: Path) -> None:
    assert loaded(tmp_path, BASE).name == "toy"
    assert loaded(tmp_path, f"name: mine\n{BASE}").name == "mine"
    assert loaded(tmp_path, f"name: mine\n{BASE}", "name=yours").name == "yours"


@pytest.mark.parametrize("name", ["a/b", "''", '"a\\\\b"', "..", "."])
def test_a_name_must_be_the_name_of_a_folder(name: str, tmp_path: Path) -> None:
    assert refused(tmp_path, f"name: {name}\n{BASE}")[0].startswith("toy.yaml:1: name: ")


def test_paths_are_relative_to_the_file_and_in_set_to_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (tmp_path / "configs").mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    text = BASE.replace("train: a.tsv", "train: [a.tsv, {source: ../b.en, target: /c.fr}]\n  valid: v.tsv\n  tests: {t: t.tsv}")
    data = loaded(tmp_path / "configs", text, "data.valid=sub/v.tsv", "data.tests.u={source: u.en, target: u.fr}").data
    configs = tmp_path / "configs"
    assert [files.paths for files in data.train] == [(f"{configs}/a.tsv",), (f"{tmp_path}/b.en", "/c.fr")]
    assert data.valid is not None
    assert [files.paths for files in data.valid] == [(f"{here}/sub/v.tsv",)]
    assert {name: files[0].paths for name, files in data.tests.items()} == {
        "t": (f"{configs}/t.tsv",),
        "u": (f"{here}/u.en", f"{here}/u.fr"),
    }


def test_both_sides_by_set_take_the_place_of_one_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = loaded(tmp_path, BASE, "data.train.source=x.en", "data.train.target=x.fr").data
    assert [files.paths for files in data.train] == [(f"{tmp_path}/x.en", f"{tmp_path}/x.fr")]


def test_the_home_directory_may_be_written_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert loaded(tmp_path, BASE.replace("a.tsv", "~/a.tsv")).data.train[0].paths == (f"{tmp_path}/home/a.tsv",)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            "{source: a.en}",
            "data.train.0: needs `target` beside `source`; for one file write just its path",
        ),
        ("{source: a.en, targt: b}", "data.train.0.targt: unknown key; did you mean 'target'?"),
        ("7", "data.train.0: expected a path, or {source: …, target: …}, but is 7"),
    ],
)
def test_wrong_corpus_files_are_explained(written: str, message: str, tmp_path: Path) -> None:
    assert refused(tmp_path, BASE.replace("a.tsv", written)) == [f"toy.yaml:4: {message}"]


@pytest.mark.parametrize("name", ["train", "valid", "a b", "a/b", "''"])
def test_names_of_test_sets_are_checked(name: str, tmp_path: Path) -> None:
    [line] = refused(tmp_path, BASE.replace("model:", f"  tests: {{{name}: t.tsv}}\nmodel:"))
    assert "a split name has letters" in line


# -- what must fit together --------------------------------------------------------------------------------------------


def test_a_limit_is_required(tmp_path: Path) -> None:
    assert refused(tmp_path, BASE.replace("max_updates: 5", "seed: 5")) == [
        "toy.yaml:8: training: needs a limit: max_updates, max_epochs or max_minutes"
    ]
    for limit in ("max_updates: 3", "max_epochs: 3", "max_minutes: 0.5"):
        assert loaded(tmp_path, BASE.replace("max_updates: 5", limit)).training.seed == 1


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("  batch_tokens: 9\n  batch_sentences: 3\n", "give batch_tokens or batch_sentences, not both"),
        ("  schedule: noam\n  warmup_updates: 0\n", "schedule: noam needs warmup_updates of at least 1"),
        (
            "  early_stopping: {metric: chrf}\n",
            "early_stopping.metric: chrf needs chrf in validation_metrics",
        ),
        (
            "  early_stopping: {metric: bleu}\n  validation_metrics: []\n",
            "early_stopping.metric: bleu needs bleu in validation_metrics",
        ),
    ],
)
def test_training_settings_fit_together(lines: str, message: str, tmp_path: Path) -> None:
    assert refused(tmp_path, BASE + lines) == [f"toy.yaml:8: training: {message}"]


def test_the_default_batch_steps_back_for_a_given_one(tmp_path: Path) -> None:
    given = loaded(tmp_path, f"{BASE}  batch_sentences: 64\n").training
    assert (given.batch_tokens, given.batch_sentences) == (None, 64)
    default = loaded(tmp_path, BASE).training
    assert (default.batch_tokens, default.batch_sentences) == (4096, None)


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        ("{type: seq2seq, hidden_size: 7}", "hidden_size must be even for a two-way encoder, but is 7"),
        (
            "{type: seq2seq, hidden_size: 8, bridge: copy, encoder_layers: 2}",
            "the encoder has 2 layers of width 8, the decoder 1 of 8",
        ),
        ("{type: seq2seq, hidden_size: 8, bridge: copy, encoder_hidden_size: 8}", "1 layers of width 16, the decoder 1 of 8"),
        ("{type: seq2seq, hidden_size: 8, attention: dot, encoder_hidden_size: 3}", "but they have 8 and 6"),
        ("{type: seq2seq, hidden_size: 8, embedding_size: 6, tie_embeddings: output}", "but they are 6 and 8"),
        ("{type: transformer, width: 10, heads: 4}", "width must be a multiple of heads, but is 10 with 4 heads"),
        ("{type: transformer, width: 9, heads: 3}", "width must be even for sinusoidal positions, but is 9"),
        ("{type: transformer, width: 8, tie_embeddings: all}", "model.tie_embeddings: all needs tokenizer.shared: true"),
    ],
)
def test_model_settings_fit_together(keys: str, part: str, tmp_path: Path) -> None:
    [line] = refused(tmp_path, BASE.replace("model:\n  type: seq2seq\n  hidden_size: 8\n", f"model: {keys}\n"))
    assert part in line


def test_patience_needs_a_validation_set(tmp_path: Path) -> None:
    text = f"{BASE}  early_stopping: {{patience: 2}}\n"
    assert "training.early_stopping.patience needs data.valid" in refused(tmp_path, text)[0]
    assert loaded(tmp_path, text, "data.valid=v.tsv").training.early_stopping.patience == 2


def test_widths_of_a_two_way_encoder() -> None:
    halved = Seq2SeqConfig(type="seq2seq", hidden_size=10)
    assert (halved.encoder_width, halved.memory_width) == (5, 10)
    one_way = Seq2SeqConfig(type="seq2seq", hidden_size=7, bidirectional=False)
    assert (one_way.encoder_width, one_way.memory_width) == (7, 7)
    given = Seq2SeqConfig(type="seq2seq", hidden_size=7, encoder_hidden_size=3)
    assert (given.encoder_width, given.memory_width) == (3, 6)


def test_a_config_is_frozen(tmp_path: Path) -> None:
    config = loaded(tmp_path, BASE)
    with pytest.raises(ValueError, match="frozen"):
        config.training.seed = 2


# -- the way back to YAML ----------------------------------------------------------------------------------------------


def test_a_dumped_config_is_read_back_the_same(tmp_path: Path) -> None:
    text = BASE.replace("source: en", "source: no").replace("seq2seq\n  hidden_size: 8", "transformer\n  width: 24")
    config = loaded(
        tmp_path,
        f'{text}tokenizer: {{space_before: ",.!?:;", space_after: "\'’\\u202f"}}\n',
        "name='1e-4'",
        "training.learning_rate=1e-4",
        "training.adam_epsilon=1e-9",
        "training.adam_betas=[0.9, 0.998]",
        "data.tests={t: {source: t.en, target: t.fr}, u: [u.tsv, v.tsv]}",
        "evaluation.metrics=[chrf++, ter]",
    )
    assert isinstance(config.model, TransformerConfig)
    dumped = dump_config(config)
    assert parse_config(dumped, "config.yaml") == config
    assert dump_config(parse_config(dumped, "config.yaml")) == dumped


def test_a_dumped_config_holds_every_default(tmp_path: Path) -> None:
    tree = parse_tree(dump_config(loaded(tmp_path, BASE)), "config.yaml")
    assert set(tree) == set(Config.model_fields)
    assert set(tree["model"]) == set(Seq2SeqConfig.model_fields)
    assert tree["training"]["early_stopping"] == {"metric": "loss", "patience": None, "min_delta": 0.0}
    assert tree["data"]["train"] == [str(tmp_path / "a.tsv")]


@pytest.mark.parametrize(
    "value",
    ["no", "1e-4", "010", "3:20", "0x1f", "null", "~", "", " a ", "a: b", "# a",
     "2024-01-31", "é\u202f!", "a\nb\n", "1_000", "<<", "=",
     "\x85", "\u2028", 1e-9, 1e20, 0.1, -3, 0, True, None, [], [[1], "x"], {"k": {}}],
)  # fmt: skip
def test_plain_values_go_to_yaml_and_back(value: object) -> None:
    again = parse_tree(dump_yaml({"key": value}), "x")["key"]
    assert again == value
    assert type(again) is type(value)


def test_a_damaged_dump_is_refused_by_its_name(tmp_path: Path) -> None:
    text = dump_config(loaded(tmp_path, BASE))
    with pytest.raises(ConfigError, match=r"^run/config\.yaml: .*but found \['a'\]"):
        parse_config("[a]", "run/config.yaml")
    with pytest.raises(ConfigError, match=r"^run/config\.yaml:\d+: training\.seed: expected a whole number, but is 'x'"):
        parse_config(text.replace("seed: 1", "seed: x"), "run/config.yaml")


def test_what_was_asked_for_has_no_defaults_but_set_and_whole_paths(tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(BASE, encoding="utf-8")
    assert load_config(path, ["training.seed=3"]).requested == {
        "data": {"source": "en", "target": "fr", "train": str(tmp_path / "a.tsv")},
        "model": {"type": "seq2seq", "hidden_size": 8},
        "training": {"max_updates": 5, "seed": 3},
        "name": "toy",
    }


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ({}, {}, []),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b"]),
        ({"a": {"b": 1}}, {}, ["a"]),
        ({"a": {"b": 1}}, {"a": {}}, ["a.b"]),
        ({"a": {"b": {"x": 1, "y": [1]}}, "z": 1}, {"a": {"b": {"x": 2, "y": [2]}}, "z": 1}, ["a.b.x", "a.b.y"]),
        ({"a": "x"}, {"a": {"b": 1}}, ["a"]),
        ({"b": 1, "a": 1}, {"a": 2, "c": 3}, ["a", "b", "c"]),
    ],
)
def test_differences_are_dotted_keys(old: dict[str, object], new: dict[str, object], keys: list[str]) -> None:
    assert list(differences(old, new)) == keys
    assert list(differences(new, old)) == keys


def test_one_path_is_written_as_a_path() -> None:
    assert Files.model_validate("a.tsv").paths == ("a.tsv",)
    assert Files.model_validate("a.tsv").model_dump_json() == '"a.tsv"'
    assert Files.model_validate({"source": "a", "target": "b"}).model_dump_json() == '{"source":"a","target":"b"}'

"""The schema of a config: every section, every key, its unit and its one default.

A config is a frozen tree of typed sections. Unknown keys are refused, a number written as text is accepted where a number is
due, and every default stands here and nowhere else. Reading YAML files and `--set` is `config_file.py`'s work.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_serializer, model_validator


def _no_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"expected a number, but is {str(value).lower()}")
    return value


def _text_of_number(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Text = Annotated[str, BeforeValidator(_text_of_number)]
Count = Annotated[int, BeforeValidator(_no_boolean), Field(ge=1)]
NonNegativeInteger = Annotated[int, BeforeValidator(_no_boolean), Field(ge=0)]
NonNegative = Annotated[float, BeforeValidator(_no_boolean), Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, BeforeValidator(_no_boolean), Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, BeforeValidator(_no_boolean), Field(ge=0, lt=1, allow_inf_nan=False)]
Metric = Literal["bleu", "bleu-lower", "bleu-multi30k", "chrf", "chrf++", "ter", "book-bleu"]


class Section(BaseModel):
    """Base of all sections: frozen, and strict about the names of its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)


class Files(Section):
    """One file that holds both sides, or a file for each side."""

    source: Text = Field(min_length=1)
    target: Annotated[Text, Field(min_length=1)] | None = None
    """None: the file `source` holds both sides; of sentence pairs, a .tsv whose first two columns they are."""

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"source": value}
        if isinstance(value, dict) and "source" in value and value.get("target") is None and set(value) <= {"source", "target"}:
            raise ValueError("needs `target` beside `source`; for one file write just its path")
        if not isinstance(value, dict | Files):
            raise ValueError(f"expected a path, or {{source: …, target: …}}, but is {value!r}")
        return value

    @model_serializer
    def _to_yaml(self) -> str | dict[str, str]:
        return self.source if self.target is None else {"source": self.source, "target": self.target}

    @property
    def paths(self) -> tuple[str, ...]:
        """The file or the two files."""
        return (self.source,) if self.target is None else (self.source, self.target)


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


Corpus = Annotated[tuple[Files, ...], BeforeValidator(_as_list), Field(min_length=1)]
"""One set of sentence pairs or a list of these, read one after the other. Any file may be gzipped."""


class DataConfig(Section):
    """What is translated into what, and where the sentence pairs are."""

    source: Text = Field(min_length=1)
    """Language code of the source side, for example `en`."""
    target: Text = Field(min_length=1)
    """Language code of the target side, for example `fr`."""
    train: Corpus
    """What is trained on: a .tsv path, `{source: …, target: …}`, or a list of these; .gz too."""
    valid: Corpus | None = None
    """The same form. None: no validation; the last checkpoint is the best one."""
    tests: dict[str, Corpus] = Field(default_factory=dict)
    """Split name -> files, scored at the end of training and by `nmt evaluate --split`."""
    max_pairs: Count | None = None
    """Read only so many training pairs, from the start."""
    max_length: Count = 200
    """Training pairs with more tokens on a side, end mark included, are dropped and counted."""
    max_ratio: Annotated[float, BeforeValidator(_no_boolean), Field(ge=1, allow_inf_nan=False)] | None = None
    """Training pairs whose longer side has more than so many times the tokens of the shorter are dropped and counted."""
    drop_identical: bool = False
    """Drop (and count) training pairs whose sides are the same text."""
    drop_duplicates: bool = False
    """Drop (and count) training pairs that came before."""

    @model_validator(mode="after")
    def _split_names(self) -> DataConfig:
        for name in self.tests:
            if not name or not all(c.isalnum() or c in "-_." for c in name) or name in {"train", "valid"}:
                raise ValueError(
                    f"tests: a split name has letters, digits, '-', '_' or '.' and is not 'train' or 'valid', but is {name!r}"
                )
        return self


class TokenizerConfig(Section):
    """How a line of text becomes tokens."""

    type: Literal["word", "char", "sentencepiece"] = "word"
    """Words between spaces, characters, or subword pieces."""
    vocab_size: Annotated[int, BeforeValidator(_no_boolean), Field(ge=5)] | None = None
    """Upper limit of entries, special tokens included; None: no limit (8000 for pieces)."""
    min_frequency: Count = 1
    """Words and characters seen less often in the training text are unknown."""
    shared: bool = False
    """One vocabulary for both sides."""
    lowercase: bool = False
    """Lower-case all text; translations are lower-case then."""
    space_before: Text = ""
    """Words: characters that begin a new token of their own even when written against a word, for example `,.!?`."""
    space_after: Text = ""
    """Words: characters after which a new token begins even without a space, for example `'` for French elision."""
    model_type: Literal["bpe", "unigram"] = "bpe"
    """Pieces: how they are learned; without meaning beside `model_file`."""
    normalization: Literal["identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"] = "identity"
    """Pieces: sentencepiece's rule for the text; `identity` changes nothing but white space. Not beside `model_file`."""
    model_file: Files | None = None
    """Pieces: a sentencepiece model of your own, or one for each side: `{source: …, target: …}`. It is copied into the run."""
    sampling: Annotated[float, BeforeValidator(_no_boolean), Field(gt=0, lt=1, allow_inf_nan=False)] | None = None
    """Pieces: split training text at random, anew each epoch. BPE: share of merges left out (0.1 is usual); unigram: alpha."""

    @model_validator(mode="after")
    def _keys_fit(self) -> TokenizerConfig:
        theirs = {"space_before": {"word"}, "space_after": {"word"}, "min_frequency": {"word", "char"}}
        theirs |= {key: {"sentencepiece"} for key in ("model_type", "normalization", "model_file", "sampling")}
        given = {key for key, field in type(self).model_fields.items() if getattr(self, key) != field.default}
        for key, kinds in theirs.items():
            if self.type not in kinds and key in given:
                raise ValueError(f"{key} belongs to type: {' or '.join(sorted(kinds))}, but type is {self.type}")
        learned = sorted(given & {"vocab_size", "model_type", "normalization"})
        if self.model_file is not None and learned:
            raise ValueError(f"model_file brings its own {learned[0]}; leave {' and '.join(learned)} out")
        if self.model_file is not None and self.model_file.target is not None and self.shared:
            raise ValueError("shared: true needs one model_file, but there is one for each side")
        return self


class Seq2SeqConfig(Section):
    """A recurrent encoder and a recurrent decoder with attention (Bahdanau et al. 2015)."""

    type: Literal["seq2seq"]
    """The kind of model."""
    cell: Literal["gru", "lstm"] = "gru"
    """Recurrent cell of encoder and decoder."""
    embedding_size: Count = 256
    """Width of token embeddings."""
    hidden_size: Count = 512
    """Width of the decoder's states."""
    encoder_hidden_size: Count | None = None
    """Width of the encoder's states in one direction; None: `hidden_size`, halved in a two-way encoder."""
    encoder_layers: Count = 1
    """Recurrent layers of the encoder."""
    decoder_layers: Count = 1
    """Recurrent layers of the decoder."""
    bidirectional: bool = True
    """Whether the encoder reads in both directions."""
    bridge: Literal["copy", "dense"] = "dense"
    """How the decoder starts: from the encoder's final states as they are, or through a dense layer with tanh."""
    attention: Literal["additive", "scaled_dot", "dot", "general"] = "additive"
    """How queries and keys are compared."""
    attention_size: Count | None = None
    """Width of additive attention; None: `hidden_size`."""
    dropout: Share = 0.2
    """Between recurrent layers."""
    embedding_dropout: Share = 0.2
    """On embedded tokens."""
    attention_dropout: Share = 0.0
    """On attention weights."""
    output_dropout: Share = 0.2
    """Before the output layer."""
    tie_embeddings: Literal["none", "output", "all"] = "none"
    """`output`: target embedding = output layer; `all`: the source embedding too (needs tokenizer.shared)."""

    @property
    def encoder_width(self) -> int:
        """Width of the encoder's states in one direction."""
        return self.encoder_hidden_size or self.hidden_size // (2 if self.bidirectional else 1)

    @property
    def memory_width(self) -> int:
        """Width of what attention looks at: both directions joined."""
        return self.encoder_width * (2 if self.bidirectional else 1)

    @model_validator(mode="after")
    def _sizes_fit(self) -> Seq2SeqConfig:
        if self.encoder_hidden_size is None and self.bidirectional and self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even for a two-way encoder, but is {self.hidden_size}")
        if self.bridge == "copy" and (self.memory_width != self.hidden_size or self.encoder_layers != self.decoder_layers):
            raise ValueError(
                "bridge: copy needs as many encoder_layers as decoder_layers and an encoder as wide as hidden_size, but the "
                f"encoder has {self.encoder_layers} layers of width {self.memory_width}, the decoder {self.decoder_layers} of "
                f"{self.hidden_size}; use bridge: dense"
            )
        if self.attention in {"dot", "scaled_dot"} and self.memory_width != self.hidden_size:
            raise ValueError(
                f"attention: {self.attention} needs queries and keys of one width, but they have {self.hidden_size} and "
                f"{self.memory_width}; use attention: general or additive"
            )
        if self.tie_embeddings != "none" and self.embedding_size != self.hidden_size:
            raise ValueError(
                f"tie_embeddings: {self.tie_embeddings} needs embedding_size = hidden_size, but they are "
                f"{self.embedding_size} and {self.hidden_size}"
            )
        return self


class TransformerConfig(Section):
    """The Transformer (Vaswani et al. 2017)."""

    type: Literal["transformer"]
    """The kind of model."""
    width: Count = 512
    """Width of embeddings and layers."""
    heads: Count = 8
    """Attention heads; a divisor of width."""
    feed_forward: Count = 2048
    """Width inside the feed-forward layers."""
    encoder_layers: Count = 6
    """Layers of the encoder."""
    decoder_layers: Count = 6
    """Layers of the decoder."""
    norm: Literal["pre", "post"] = "pre"
    """Layer norm before each sublayer, or after the sum as in the paper."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Sine waves, or a learned table."""
    position_base: Positive = 10000.0
    """Base of the waves: the slowest has a period of about 2π times it."""
    max_positions: Count = 1024
    """Size of the table of learned positions; longer input is cut. Sinusoidal positions have no end."""
    attention_bias: bool = False
    """Whether the projections of attention have biases."""
    dropout: Share = 0.1
    """On what each sublayer adds."""
    embedding_dropout: Share | None = None
    """After the positions; None: `dropout`."""
    attention_dropout: Share = 0.0
    """On attention weights."""
    activation_dropout: Share = 0.0
    """Inside the feed-forward layers."""
    tie_embeddings: Literal["none", "output", "all"] = "none"
    """`output`: target embedding = output layer; `all`: the source embedding too (needs tokenizer.shared)."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> TransformerConfig:
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, but is {self.width} with {self.heads} heads")
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f"width must be even for sinusoidal positions, but is {self.width}")
        return self


class EarlyStoppingConfig(Section):
    """Which score decides what is best, and when training stops for want of improvement."""

    metric: Literal["loss", "perplexity", "accuracy", "bleu", "chrf"] = "loss"
    """Which validation score decides; its direction follows from its name."""
    patience: Count | None = None
    """Stop after so many validations in a row without improvement; None: never."""
    min_delta: NonNegative = 0.0
    """What a score must improve by to count."""


class TrainingConfig(Section):
    """How the weights are found. An update is one step of the optimizer."""

    batch_tokens: Count | None = None
    """Sentences x longest target with its end mark, padding included; default 4096 where no batch size is given."""
    batch_sentences: Count | None = None
    """Sentences of a batch, instead of `batch_tokens`."""
    accumulate: Count = 1
    """Batches summed into one update."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """Adam, or Adam with decoupled weight decay."""
    adam_betas: tuple[Share, Share] = (0.9, 0.98)
    """Decay of the running means of gradients and of their squares."""
    adam_epsilon: Positive = 1e-9
    """Added to the root of the mean square."""
    weight_decay: NonNegative = 0.0
    """On matrices; biases and norms are left alone."""
    learning_rate: Positive = 1e-3
    """The peak, for every schedule."""
    schedule: Literal["constant", "inverse_sqrt", "noam", "cosine", "linear"] = "inverse_sqrt"
    """How the rate goes on after warm-up; `cosine` and `linear` end with the nearest limit."""
    warmup_updates: NonNegativeInteger = 500
    """Updates over which the rate rises to its peak."""
    final_factor: Share = 0.0
    """Share of the peak at which `cosine` and `linear` end."""
    label_smoothing: Share = 0.1
    """Share of the target spread over the whole vocabulary."""
    clip_norm: Positive | None = 1.0
    """Largest norm of the mean gradient per target token; None: no clipping."""
    max_updates: Count | None = None
    """Stop after so many updates. One limit at least is needed; the first one reached ends training."""
    max_epochs: Count | None = None
    """Stop after so many passes over the corpus."""
    max_minutes: Positive | None = None
    """Stop after so many minutes of training, over all sittings."""
    log_every: Count = 50
    """Updates between two lines of the log."""
    validate_every: Count = 500
    """Updates between two validations; there is one at the end in any case."""
    save_every: Count = 500
    """Updates between two checkpoints; there is one at the end in any case."""
    validation_metrics: Annotated[tuple[Literal["bleu", "chrf"], ...], BeforeValidator(_as_list)] = ("bleu",)
    """Scores of greedy translations of the validation set; an empty list saves the time."""
    early_stopping: EarlyStoppingConfig = EarlyStoppingConfig()
    """What is best, and when to stop for want of improvement."""
    keep_best: Count = 1
    """Checkpoints kept for their score."""
    keep_last: Count = 1
    """Checkpoints kept for being the newest."""
    max_bad_updates: Count = 10
    """Stop after so many updates in a row whose loss or gradient is not finite; each of them is skipped."""
    seed: NonNegativeInteger = 1
    """Of weights, order of batches and dropout."""
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """auto: bf16 on GPUs that have it, float32 elsewhere."""

    @model_validator(mode="before")
    @classmethod
    def _default_batch(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("batch_tokens") is None and value.get("batch_sentences") is None:
            return {**value, "batch_tokens": 4096}
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> TrainingConfig:
        if self.batch_tokens is not None and self.batch_sentences is not None:
            raise ValueError("give batch_tokens or batch_sentences, not both")
        if self.max_updates is None and self.max_epochs is None and self.max_minutes is None:
            raise ValueError("needs a limit: max_updates, max_epochs or max_minutes")
        if self.schedule in {"noam", "inverse_sqrt"} and not self.warmup_updates:
            raise ValueError(f"schedule: {self.schedule} needs warmup_updates of at least 1")
        metric = self.early_stopping.metric
        if metric in {"bleu", "chrf"} and metric not in self.validation_metrics:
            raise ValueError(f"early_stopping.metric: {metric} needs {metric} in validation_metrics")
        return self


class DecodingConfig(Section):
    """How a trained model translates."""

    beam_size: Count = 5
    """Hypotheses kept at each step; 1 is greedy search."""
    length_penalty: NonNegative = 1.0
    """alpha in: score = log-probability / length^alpha."""
    length_penalty_kind: Literal["length", "gnmt"] = "length"
    """`gnmt`: ((5 + length) / 6)^alpha instead of length^alpha."""
    stopping: Literal["beam-full", "exact"] = "beam-full"
    """When a sentence is done: when beam_size hypotheses have ended, or (slow) when no live one can still win."""
    max_length: Count | None = None
    """Most tokens of a translation, end mark included; None: 2 x source + 10."""
    max_source_length: Count = 1024
    """Longer lines are cut, with a warning, or as `--long-lines` says."""
    batch_tokens: Count = 4096
    """Sentences x longest source, padding included, in one decoding batch."""


class EvaluationConfig(Section):
    """Which scores the reports give."""

    metrics: Annotated[tuple[Metric, ...], BeforeValidator(_as_list)] = ("bleu", "chrf")
    """Scores of the test sets."""


class Config(Section):
    """A whole config. `name` is the run's name: its folder is `runs/<name>/`, so it has no slash and no dot in front."""

    name: Text = Field(min_length=1, pattern=r"^[^./\\\x00][^/\\\x00]*$")
    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: Annotated[Seq2SeqConfig | TransformerConfig, Field(discriminator="type")]
    training: TrainingConfig
    decoding: DecodingConfig = DecodingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _sections_fit(self) -> Config:
        if self.model.tie_embeddings == "all" and not self.tokenizer.shared:
            raise ValueError("model.tie_embeddings: all needs tokenizer.shared: true, since both sides use one embedding")
        if self.training.early_stopping.patience is not None and self.data.valid is None:
            raise ValueError("training.early_stopping.patience needs data.valid, a validation set")
        return self

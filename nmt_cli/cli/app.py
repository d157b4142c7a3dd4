"""The command `nmt`: its subcommands, and the one place where errors become messages and exit codes.

Each command imports what it needs when it runs, so that `--help` and config errors do not wait for torch.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import traceback
from pathlib import Path
from typing import Annotated, Literal

import typer

from nmt_cli import __version__
from nmt_cli.errors import Interrupted, NmtError, ReaderClosed, ResourceError, is_full_disk

app = typer.Typer(
    name="nmt",
    help="Train neural machine translation models from a YAML file; translate, score and look into them from the run folder.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder that `nmt train` made.", show_default=False)]
DeviceOption = Annotated[
    str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda, cuda:N or mps. auto: CUDA where there is one, else the CPU.")
]
CheckpointOption = Annotated[str, typer.Option(metavar="NAME", help="best, last, or the update number of a checkpoint.")]
BeamOption = Annotated[
    int | None, typer.Option("--beam", metavar="N", min=1, help="Beam size; 1 is greedy. Default: as the run's config says.")
]
LengthPenaltyOption = Annotated[
    float | None,
    typer.Option(metavar="X", min=0, help="alpha in score = log-probability / length^alpha. Default: as the config says."),
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Most tokens of a translation, end mark included. Default: 2 x source + 10."),
]
MaxSourceLengthOption = Annotated[
    int | None, typer.Option(metavar="N", min=2, help="Most tokens of a line, end mark included. Default: as the config says.")
]
LongLinesOption = Annotated[
    Literal["cut", "split", "error"], typer.Option(metavar="HOW", help="Lines above --max-source-length: cut, split or error.")
]
BatchTokensOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Sentences x longest source in a batch, padding included.")
]
BatchSentencesOption = Annotated[int | None, typer.Option(metavar="N", min=1, help="Most sentences of a batch.")]
EngineOption = Annotated[
    Literal["torch", "ctranslate2"],
    typer.Option(metavar="NAME", help="torch, or ctranslate2 for a Transformer that was exported; see nmt export."),
]
PrecisionOption = Annotated[
    Literal["float32", "bf16", "int8"], typer.Option(metavar="NAME", help="float32; bf16 (torch) or int8 (ctranslate2).")
]
ClickException: type[Exception] = typer.BadParameter.__mro__[2]
"""Every mistake in options and arguments; typer carries click inside since 0.26, so that it cannot be imported by name."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nmt {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Read the options before the subcommand."""


@app.command()
def train(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="YAML file: what to train on, which model, how.", show_default=False)
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the config, e.g. --set training.seed=2. Repeatable."),
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Run folder. Default: runs/NAME, NAME from the config.")
    ] = None,
    device: DeviceOption = "auto",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print effective config, corpus figures, model size and a batch; write nothing."),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a finished run whose limits were raised.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove what nmt wrote into the run folder and start anew.")
    ] = False,
) -> None:
    """Train a model from a config, then report its test scores.

    The same command again goes on with a run that was stopped, and prints the report of one that is finished.

    Example: `nmt train configs/sample-transformer.yaml --set training.max_minutes=2`
    """
    from nmt_cli.config_file import load_config

    loaded = load_config(config, overrides or [])  # a mistake in it is told before torch is imported
    from nmt_cli.cli.train import TrainOptions, run_train

    options = TrainOptions(run_dir=run_dir, device=device, dry_run=dry_run, resume=resume, overwrite=overwrite)
    run_train(loaded, options)


@app.command()
def translate(
    run: RunArgument,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Text to translate, a sentence a line; .gz too. Default: -, standard input.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File for the translations; for several inputs a template with {folder}, {stem}, {name}. Default: stdout.",
        ),
    ] = None,
    form: Annotated[
        Literal["text", "jsonl", "tsv"],
        typer.Option("--format", metavar="NAME", help="text: a line each; jsonl: with tokens and scores; tsv: columns."),
    ] = "text",
    n_best: Annotated[
        int, typer.Option("--n-best", metavar="N", min=1, help="The best N translations of each line (jsonl, tsv).")
    ] = 1,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    length_penalty_kind: Annotated[
        Literal["length", "gnmt"] | None,
        typer.Option(metavar="KIND", help="length: length^alpha; gnmt: ((5 + length) / 6)^alpha. Default: as the config says."),
    ] = None,
    stopping: Annotated[
        Literal["beam-full", "exact"] | None,
        typer.Option(metavar="RULE", help="beam-full, or exact: until nothing better can come (slow)."),
    ] = None,
    min_length: Annotated[int, typer.Option(metavar="N", min=0, help="Fewest tokens before the end mark.")] = 0,
    max_length: MaxLengthOption = None,
    no_repeat_ngram: Annotated[
        int, typer.Option(metavar="N", min=0, help="No N tokens in a row come twice in a translation; 0: they may.")
    ] = 0,
    repetition_penalty: Annotated[
        float, typer.Option(metavar="X", min=1.0, help="Above 1: tokens that are there already become less probable.")
    ] = 1.0,
    prefixes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What each translation begins with, a line for each line.")
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw translations at random instead of searching.")] = False,
    temperature: Annotated[
        float | None, typer.Option(metavar="X", min=0.001, help="--sample: below 1 nearer to the most probable. Default: 1.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(metavar="K", min=1, help="--sample: among the K most probable tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="P", min=0, max=1, help="--sample: among the fewest tokens of probability P.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, help="--sample: seed. Default: 1.")] = None,
    ensemble: Annotated[
        list[Path] | None, typer.Option("--ensemble", metavar="RUN", help="Another run of the same vocabulary. Repeatable.")
    ] = None,
    max_source_length: MaxSourceLengthOption = None,
    long_lines: LongLinesOption = "cut",
    batch_tokens: BatchTokensOption = None,
    batch_sentences: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Most sentences of a batch; a pipe waits until so many have come.")
    ] = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    engine: EngineOption = "torch",
    precision: PrecisionOption = "float32",
    invalid_utf8: Annotated[
        Literal["error", "replace"],
        typer.Option(metavar="HOW", help="Bytes that are not UTF-8: error, or replace (with a warning)."),
    ] = "error",
    alignments: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write hard alignments there: `0-0 1-2 …`, a line for each line.")
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="Align words rather than pieces.")] = False,
    replace_unknown: Annotated[
        bool, typer.Option("--replace-unknown", help="Put the source word in the place of an unknown word (word tokens).")
    ] = False,
) -> None:
    """Translate text: one line out for each line in, in order.

    Only a newline ends a line; every other Unicode space is white space inside the sentence; a blank line gives an empty line.
    A job from file to file that was stopped goes on where it was when the same command is given again.

    Example: `echo "The cat is asleep." | nmt translate runs/sample-transformer`
    """
    from nmt_cli.cli.options import SearchOptions, sampling_of
    from nmt_cli.cli.translate import TranslateOptions, run_translate

    search = SearchOptions(
        beam=beam,
        length_penalty=length_penalty,
        length_penalty_kind=length_penalty_kind,
        stopping=stopping,
        min_length=min_length,
        max_length=max_length,
        no_repeat_ngram=no_repeat_ngram,
        repetition_penalty=repetition_penalty,
        n_best=n_best,
        sampling=sampling_of(sample, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed),
        max_source_length=max_source_length,
        long_lines=long_lines,
        batch_tokens=batch_tokens,
        batch_sentences=batch_sentences,
        checkpoint=checkpoint,
        device=device,
        unknown=replace_unknown,
        ensemble=tuple(ensemble or ()),
        engine=engine,
        precision=precision,
    )
    options = TranslateOptions(
        files=tuple(files or ("-",)),
        out=out,
        format=form,
        prefixes=prefixes,
        invalid_utf8=invalid_utf8,
        alignments=alignments,
        words=words,
    )
    run_translate(run, search, options)


@app.command()
def evaluate(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Run folder that `nmt train` made.", show_default=False)
    ] = None,
    split: Annotated[
        str, typer.Option(metavar="NAME,…", help="Sets of the run to score, e.g. test,valid. Default: all test sets.")
    ] = "",
    hypotheses: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Score this file of translations instead of a run.")
    ] = None,
    references: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The references of --hypotheses, a line each.")
    ] = None,
    metrics: Annotated[
        str,
        typer.Option(metavar="NAME,…", help="bleu, bleu-lower, bleu-multi30k, chrf, chrf++, ter, book-bleu; comma-separated."),
    ] = "",
    json_output: Annotated[bool, typer.Option("--json", help="Print {split: {metric: {score, signature}}}.")] = False,
    score_only: Annotated[bool, typer.Option("--score-only", help="Print the bare score (one split, one metric).")] = False,
    fail_under: Annotated[
        str, typer.Option(metavar="METRIC=SCORE,…", help="Exit with 5 unless every split reaches these scores.")
    ] = "",
    target: Annotated[
        str | None, typer.Option(metavar="CODE", help="Language of --hypotheses, for bleu-multi30k. Default: en.")
    ] = None,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    max_length: MaxLengthOption = None,
    max_source_length: MaxSourceLengthOption = None,
    long_lines: LongLinesOption = "cut",
    batch_tokens: BatchTokensOption = None,
    batch_sentences: BatchSentencesOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    engine: EngineOption = "torch",
    precision: PrecisionOption = "float32",
) -> None:
    """Score a run on its test sets, or a file of translations against references.

    Scores are sacrebleu's, on the text as it is, each with its signature.

    Examples: `nmt evaluate runs/sample-transformer --split test` ·
    `nmt evaluate --hypotheses out.txt --references ref.txt --metrics bleu --score-only`
    """
    from nmt_cli.cli.evaluate import EvaluateOptions, run_evaluate
    from nmt_cli.cli.options import SearchOptions

    search = SearchOptions(
        beam=beam,
        length_penalty=length_penalty,
        max_length=max_length,
        max_source_length=max_source_length,
        long_lines=long_lines,
        batch_tokens=batch_tokens,
        batch_sentences=batch_sentences,
        checkpoint=checkpoint,
        device=device,
        engine=engine,
        precision=precision,
    )
    options = EvaluateOptions(
        splits=_names(split),
        metrics=_names(metrics),
        json=json_output,
        score_only=score_only,
        fail_under=fail_under,
        target=target,
    )
    run_evaluate(run, options, search, hypotheses=hypotheses, references=references)


@app.command("attn-dump")
def attn_dump(
    run: RunArgument,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the files; not needed for terminal.", show_default=False)
    ] = None,
    text: Annotated[str | None, typer.Option(metavar="TEXT", help="A sentence to look into.")] = None,
    file: Annotated[Path | None, typer.Option("--input", metavar="FILE", help="Text to look into, a sentence a line.")] = None,
    target: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A translation of --text to look at, instead of the model's own.")
    ] = None,
    targets: Annotated[Path | None, typer.Option(metavar="FILE", help="Translations of --input, a line each.")] = None,
    formats: Annotated[
        str, typer.Option("--format", metavar="NAME,…", help="json, npz, png, svg, html, terminal, pharaoh; comma-separated.")
    ] = "json",
    kind: Annotated[str, typer.Option(metavar="NAME,…", help="encoder, decoder, cross. Default: all.")] = "",
    layer: Annotated[str, typer.Option(metavar="N,…", help="Layers, from 0 as in the data. Default: all.")] = "",
    head: Annotated[str, typer.Option(metavar="N,…", help="Heads, from 0 as in the data. Default: all.")] = "",
    average: Annotated[str, typer.Option(metavar="NAME,…", help="Mean of the heads, of the layers, or of both.")] = "",
    words: Annotated[bool, typer.Option("--words", help="pharaoh: align words rather than pieces.")] = False,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    max_length: MaxLengthOption = None,
    max_source_length: MaxSourceLengthOption = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Write the attention of every layer and head: encoder self-, decoder self- and decoder-encoder attention.

    json: `attention.jsonl`, one object a line of input. html: `attention.html`, one page to look around in. pharaoh:
    `alignment.txt`. npz, png, svg: files of each line. terminal: shades on standard output.

    Example: `nmt attn-dump runs/sample-transformer --text "The cat is asleep." --out attention --format html,png`
    """
    from nmt_cli.cli.attn_dump import DumpOptions, run_attn_dump
    from nmt_cli.cli.options import SearchOptions

    search = SearchOptions(
        beam=beam,
        length_penalty=length_penalty,
        max_length=max_length,
        max_source_length=max_source_length,
        checkpoint=checkpoint,
        device=device,
    )
    options = DumpOptions(
        text=text,
        file=file,
        target=target,
        targets=targets,
        out=out,
        formats=_names(formats),
        kinds=_names(kind),
        layers=_names(layer),
        heads=_names(head),
        average=_names(average),
        words=words,
    )
    run_attn_dump(run, search, options)


@app.command()
def score(
    run: RunArgument,
    source: Annotated[
        str, typer.Option(metavar="FILE", help="Source lines; .gz too; - is standard input.", show_default=False)
    ],
    target: Annotated[
        str, typer.Option(metavar="FILE", help="Translations, a line for each line; - is standard input.", show_default=False)
    ],
    form: Annotated[
        Literal["text", "json"],
        typer.Option("--format", metavar="NAME", help="text: the log-probability of each line; json: of each token too."),
    ] = "text",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File for the scores. Default: standard output.")] = None,
    max_source_length: MaxSourceLengthOption = None,
    batch_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Sentences x longest side in a batch, padding included.")
    ] = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
) -> None:
    """Say how probable the model finds given translations: the log-probability of each line, and the perplexity of all.

    Natural logarithms, end marks included. A source line above the limit is cut, with a warning. The summary goes to
    standard error.

    Example: `nmt score runs/sample-transformer --source input.en --target reference.fr`
    """
    from nmt_cli.cli.options import SearchOptions
    from nmt_cli.cli.score import run_score

    options = SearchOptions(
        max_source_length=max_source_length, batch_tokens=batch_tokens, checkpoint=checkpoint, device=device
    )
    run_score(run, options, source=source, target=target, form=form, out=out)


@app.command()
def export(
    run: RunArgument,
    to: Annotated[str, typer.Option(metavar="ENGINE", help="ctranslate2.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the model, which then needs no run folder.")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Write into the run folder, where `nmt translate --engine` finds it.")
    ] = False,
    checkpoint: CheckpointOption = "best",
) -> None:
    """Write a Transformer for another engine, with tokenizer and settings: CTranslate2, for fast translation without torch.

    Example: `nmt export runs/sample-transformer --to ctranslate2 --in-place`
    """
    from nmt_cli.cli.export import run_export

    run_export(run, to, out=out, checkpoint=checkpoint, in_place=in_place)


@app.command()
def demo(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="kernel-regression, masked-softmax, scores, positions, transformer-blocks or complexity.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for pictures and numbers.", show_default=False)],
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of what is random.")] = 1,
) -> None:
    """Show one of the systems that translation models are made of: pictures, the numbers behind them, and what to look at.

    Example: `nmt demo kernel-regression --out demo`
    """
    from nmt_cli.cli.demo import run_demo

    run_demo(name, out, seed)


@app.command()
def info(run: RunArgument) -> None:
    """Show what a run folder holds, in one screen: model, corpora, training, scores, checkpoints.

    Example: `nmt info runs/sample-transformer`
    """
    from nmt_cli.cli.info import run_info

    run_info(run)


@app.command()
def fetch(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Corpus: multi30k, tatoeba-600 or tatoeba-5000.", show_default=False)
    ],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="DIR", help="Folder that holds the corpus (or a folder of its name).", show_default=False
        ),
    ] = None,
) -> None:
    """Copy a named corpus into data/corpora/NAME, checking every file.

    Example: `nmt fetch tatoeba-600 --from ../shared/corpora`
    """
    from nmt_cli.cli.fetch import run_fetch

    run_fetch(name, source)


@app.command()
def split(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="A .tsv (its first two columns), or a source and a target file.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the files.", show_default=False)],
    valid: Annotated[int, typer.Option(metavar="N", min=0, help="Pairs for validation.")] = 1000,
    test: Annotated[int, typer.Option(metavar="N", min=0, help="Pairs for the test.")] = 1000,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the choice.")] = 1,
) -> None:
    """Divide sentence pairs at random into training, validation and test files; no source sentence is in two of them.

    Example: `nmt split corpus.en corpus.fr --out data/my` writes `train.en`, `train.fr`, `valid.en`, …
    """
    from nmt_cli.cli.split import run_split

    run_split(files, out, {"test": test, "valid": valid}, seed=seed)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def main() -> None:
    """Run the command line and leave with the exit code that scripts rely on."""
    use_utf8()
    sys.exit(_guarded())


def use_utf8() -> None:
    r"""Make stdout and stderr UTF-8 with plain `\\n` line ends, whatever the locale."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace" if stream is sys.stderr else "strict", newline="\n")


def _guarded() -> int:
    """Run the command; return its exit code. Only a fault of ours shows a traceback."""
    try:
        result = app(standalone_mode=False)
        return result if isinstance(result, int) else 0
    except (typer.Abort, KeyboardInterrupt):
        return _say("stopped", 130)
    except ClickException as error:
        error.show()  # type: ignore[attr-defined]
        return 2
    except ReaderClosed as error:
        return error.exit_code
    except Interrupted as error:
        return _say(str(error), 128 + error.signal_number)
    except NmtError as error:
        return _say("\n".join(f"nmt: error: {line}" for line in str(error).splitlines()), error.exit_code)
    except (MemoryError, OSError, RuntimeError) as error:
        return _out_of_resources(error)


def _out_of_resources(error: Exception) -> int:
    """Say that memory or disk ran out when that is what `error` means; anything else is a fault of ours."""
    if isinstance(error, OSError) and is_full_disk(error):
        return _say(f"nmt: error: no space left on the disk: {error.filename or error}", ResourceError.exit_code)
    if isinstance(error, MemoryError) or re.search("out of memory|can't allocate memory", str(error)):
        advice = "use a smaller batch (training.batch_tokens, --batch-tokens) or model"
        return _say(f"nmt: error: memory ran out; {advice}", ResourceError.exit_code)
    traceback.print_exception(error)
    return 1


def _say(text: str, code: int) -> int:
    with contextlib.suppress(OSError):  # nobody may read it any more
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    return code

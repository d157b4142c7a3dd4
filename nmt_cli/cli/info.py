"""`nmt info`: what a run folder holds, in one screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nmt_cli.cli.console import duration, print_data, table_text
from nmt_cli.config import Config, Seq2SeqConfig
from nmt_cli.evaluation.report import format_score
from nmt_cli.evaluation.scores import Score
from nmt_cli.runs.folder import RunFolder


def run_info(run: Path) -> None:
    """Print model, corpora, training, scores and checkpoints of a run."""
    folder = RunFolder.open(run)
    config, manifest = folder.config(), folder.manifest()
    print_data("\n".join([*_facts(folder, config, manifest), "", *_checkpoints(folder), *_scores(folder, config)]).rstrip())


def describe_model(config: Config) -> str:
    """Return the model's kind and sizes in one line."""
    model = config.model
    if isinstance(model, Seq2SeqConfig):
        way = "two-way" if model.bidirectional else "one-way"
        return (
            f"seq2seq: {way} {model.cell.upper()} encoder ({model.encoder_layers} x {model.encoder_width}), "
            f"{model.cell.upper()} decoder ({model.decoder_layers} x {model.hidden_size}), {model.attention} attention"
        )
    return (
        f"transformer: {model.encoder_layers}+{model.decoder_layers} layers, width {model.width}, {model.heads} heads, "
        f"feed-forward {model.feed_forward}, {model.norm}-norm"
    )


def _facts(folder: RunFolder, config: Config, manifest: dict[str, Any]) -> list[str]:
    vocabulary, corpora, versions = (manifest.get(key, {}) for key in ("vocabulary", "corpora", "versions"))
    pairs = {split: _lines(config, split, [record["lines"] for record in records]) for split, records in corpora.items()}
    finished = manifest.get("finished")
    facts = {
        "run": f"{config.name} ({folder.path}), {_size(folder.path)}",
        "model": describe_model(config),
        "parameters": f"{manifest.get('parameters', 0):,}",
        "languages": f"{config.data.source} -> {config.data.target}, {config.tokenizer.type} tokens, "
        f"vocabulary {vocabulary.get('source', '?')} -> {vocabulary.get('target', '?')}",
        "corpora": ", ".join(f"{split} {count:,}" for split, count in pairs.items()) + " lines",
        "training": _training(folder, finished),
        "made by": f"nmt {versions.get('nmt', '?')}, torch {versions.get('torch', '?')}, "
        f"{manifest.get('device', '?')}, seed {config.training.seed}",
    }
    width = max(map(len, facts))
    return [f"{name:<{width}}  {value}" for name, value in facts.items()]


def _lines(config: Config, split: str, lines: list[int]) -> int:
    """Return the pairs of a set from the lines of its files: a set of two files has its pairs in each of them."""
    sets = {"train": config.data.train, "valid": config.data.valid or (), **config.data.tests}[split]
    starts = [sum(len(earlier.paths) for earlier in sets[:index]) for index in range(len(sets))]
    return sum(lines[start] for start in starts)


def _training(folder: RunFolder, finished: dict[str, Any] | None) -> str:
    if finished is None:
        last = folder.index().names.get("last")
        return f"not finished; last checkpoint: {last or 'none yet'}. The same `nmt train` command goes on"
    time_spent = duration(finished["seconds"])
    return f"{finished['updates']:,} updates, {finished['epochs']:.1f} epochs, {time_spent} ({finished['reason']})"


def _checkpoints(folder: RunFolder) -> list[str]:
    index = folder.index()
    rows = []
    for name, record in sorted(index.checkpoints.items()):
        names = ", ".join(sorted(n for n, target in index.names.items() if target == name))
        scores = "  ".join(f"{k} {v:.4g}" for k, v in record.scores.items() if k not in {"update", "epoch"})
        rows.append((name, names, scores))
    return [table_text(("checkpoint", "names", "validation"), rows, left=3), ""] if rows else ["no checkpoint yet"]


def _scores(folder: RunFolder, config: Config) -> list[str]:
    rows = []
    for split in config.data.tests:
        if (folder.path / "reports" / f"{split}.json").exists():
            scores = folder.read_json(f"reports/{split}.json")["scores"]
            rows += [(split, name, format_score(Score(name, value["score"], ""))) for name, value in scores.items()]
    return [table_text(("split", "metric", "score"), rows, left=2)] if rows else []


def _size(path: Path) -> str:
    total = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return f"{total / 1e6:.1f} MB"

"""`nmt info`: what a run folder holds, in one screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nmt_cli.cli.console import duration, print_data, table_text
from nmt_cli.config import Config, Seq2SeqConfig
from nmt_cli.runs.folder import RunFolder


def run_info(run: Path) -> None:
    """Print model, corpora, training, scores and checkpoints of a run."""
    folder = RunFolder.open(run)
    config, manifest = folder.config(), folder.manifest()
    print_data("\n".join([*_facts(folder, config, manifest), "", *_checkpoints(folder), *_scores(folder)]).rstrip())


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
    pairs = {split: records[0]["lines"] if records else 0 for split, records in corpora.items()}
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


def _scores(folder: RunFolder) -> list[str]:
    rows = []
    for path in sorted((folder.path / "reports").glob("*.json")):
        report = json.loads(folder.read_text(f"reports/{path.name}"))
        rows += [(report["split"], metric, f"{value['score']:.2f}") for metric, value in report["scores"].items()]
    return [table_text(("split", "metric", "score"), rows, left=2)] if rows else []


def _size(path: Path) -> str:
    total = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return f"{total / 1e6:.1f} MB"

"""From run folders to models and to an engine in PyTorch."""

from __future__ import annotations

import torch

from nmt_cli.cli.options import SearchOptions
from nmt_cli.decoding.torch_engine import TorchEngine
from nmt_cli.devices import choose_device, prepare_device, threads_of
from nmt_cli.errors import ConfigError
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.runs.build import build_model
from nmt_cli.runs.folder import RunFolder
from nmt_cli.runs.weights import WEIGHTS_FILE, load_weights
from nmt_cli.text.tokenizers import Tokenizer

PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16}


def load_model(folder: RunFolder, checkpoint: str) -> Seq2Seq:
    """Return the model of a checkpoint, on the CPU, in evaluation mode."""
    source, target = folder.tokenizers()
    model = build_model(
        folder.config().model,
        source_size=len(source.vocabulary),
        target_size=len(target.vocabulary),
        random=RandomSource(0),
    )
    load_weights(model, folder.verified(folder.checkpoint_path(checkpoint), WEIGHTS_FILE))
    return model.eval()


def torch_engine(folder: RunFolder, options: SearchOptions) -> TorchEngine:
    """Return an engine over the run's model, or over an ensemble with `options.ensemble`.

    Raises:
        RunError: A run or its checkpoint cannot be used.
        ConfigError: The device or the precision is not there, or runs of an ensemble differ in their vocabularies.
    """
    if options.precision not in PRECISIONS:
        raise ConfigError(f"--precision {options.precision} is for --engine ctranslate2; torch has float32 and bf16")
    device = choose_device(options.device)
    prepare_device(device)
    others = [RunFolder.open(path) for path in options.ensemble]
    for other in others:
        _check_vocabularies(folder, other)
    models = [load_model(run, options.checkpoint).to(device) for run in (folder, *others)]
    return TorchEngine(models, device, PRECISIONS[options.precision], workers=threads_of(device))


def _check_vocabularies(one: RunFolder, other: RunFolder) -> None:
    for side, ours, theirs in zip(("source", "target"), one.tokenizers(), other.tokenizers(), strict=True):
        if _identity(ours) != _identity(theirs):
            raise ConfigError(
                f"--ensemble: runs that vote need the same vocabularies, but the {side} tokenizers of {one.path} and "
                f"{other.path} differ; train them with one tokenizer (tokenizer.model_file), or on the same corpus"
            )


def _identity(tokenizer: Tokenizer) -> tuple[object, ...]:
    return tokenizer.kind, tokenizer.settings(), tokenizer.stored()

"""From a run folder to a translator that is ready to work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nmt_cli.cli.options import SearchOptions
from nmt_cli.decoding.torch_engine import TorchEngine
from nmt_cli.decoding.translator import Translator
from nmt_cli.devices import choose_device, prepare_device
from nmt_cli.models.dropout import RandomSource
from nmt_cli.models.interface import Seq2Seq
from nmt_cli.runs.build import build_model
from nmt_cli.runs.folder import RunFolder
from nmt_cli.runs.weights import WEIGHTS_FILE, load_weights


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


def make_translator(
    folder: RunFolder,
    options: SearchOptions,
    *,
    warn: Callable[[str], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Translator:
    """Return a translator of a run.

    Args:
        folder: The run.
        options: Command-line options; the run's config stands for those not given.
        warn: Called with warnings; None: they are dropped.
        on_progress: Called with numbers of lines done.

    Raises:
        RunError: The run or its checkpoint cannot be used.
        ConfigError: The device is not there.
    """
    config = folder.config()
    device = choose_device(options.device)
    prepare_device(device)
    model = load_model(folder, options.checkpoint).to(device)
    source, target = folder.tokenizers()
    engine = TorchEngine(model, device)  # float32: translations do not depend on batch size and order
    settings = options.settings(config.decoding)
    return Translator(engine, source, target, settings, warn=warn or (lambda _: None), on_progress=on_progress)


def load_run(path: str | Path, *, device: str = "auto", checkpoint: str = "best", beam: int | None = None) -> Translator:
    """Return a translator of the run folder at `path`, for use from Python.

    Args:
        path: Run folder that `nmt train` made.
        device: auto, cpu, cuda, cuda:N or mps.
        checkpoint: Name or update number.
        beam: Beam size; None: the run's config.

    Raises:
        NmtError: The run cannot be used; the message says why.
    """
    return make_translator(RunFolder.open(Path(path)), SearchOptions(device=device, checkpoint=checkpoint, beam=beam))

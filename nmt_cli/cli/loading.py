"""From a run folder to a translator that is ready to work, by either engine. No torch is imported unless it is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nmt_cli.cli.options import EngineName, Precision, SearchOptions
from nmt_cli.decoding.engine import Engine
from nmt_cli.decoding.translator import Translator
from nmt_cli.errors import ConfigError
from nmt_cli.runs.exported import find_export, is_export, read_record
from nmt_cli.runs.folder import RunFolder


def open_run(path: Path) -> RunFolder:
    """Return the run folder at `path`, or the folder of an exported model, which holds what translating needs.

    Raises:
        RunError: It is neither, or a newer version of nmt made it.
    """
    if is_export(path):
        read_record(path)
        return RunFolder(path)
    return RunFolder.open(path)


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
        ConfigError: The device is not there, or options do not fit the run or one another.
    """
    settings = options.settings(folder.config().decoding)
    if options.engine == "ctranslate2" or is_export(folder.path):
        from nmt_cli.decoding.ct2_engine import check_settings

        check_settings(settings.search)
    source, target = folder.tokenizers()
    engine = _engine(folder, options)
    return Translator(engine, source, target, settings, warn=warn or (lambda _: None), on_progress=on_progress)


def _engine(folder: RunFolder, options: SearchOptions) -> Engine:
    exported = is_export(folder.path)
    if options.engine == "torch" and not exported:
        from nmt_cli.cli.torch_loading import torch_engine

        return torch_engine(folder, options)
    from nmt_cli.decoding.ct2_engine import load_exported

    if options.ensemble:
        raise ConfigError("--ensemble is for --engine torch: CTranslate2 runs one model")
    if options.precision == "bf16":
        raise ConfigError("--precision bf16 is for --engine torch; CTranslate2 has float32 and int8 here")
    path = folder.path if exported else find_export(folder, options.checkpoint)
    return load_exported(path, device=options.device, compute_type=options.precision).engine


def load_run(
    path: str | Path,
    *,
    device: str = "auto",
    checkpoint: str = "best",
    beam: int | None = None,
    engine: EngineName = "torch",
    precision: Precision = "float32",
) -> Translator:
    """Return a translator of the run folder at `path`, for use from Python.

    Args:
        path: Run folder that `nmt train` made, or a model that `nmt export` made.
        device: auto, cpu, cuda, cuda:N or mps.
        checkpoint: Name or update number.
        beam: Beam size; None: the run's config.
        engine: torch, or ctranslate2 for a run that was exported with `nmt export --in-place`.
        precision: float32; bf16 (torch) or int8 (ctranslate2).

    Raises:
        NmtError: The run cannot be used; the message says why.
    """
    options = SearchOptions(device=device, checkpoint=checkpoint, beam=beam, engine=engine, precision=precision)
    return make_translator(open_run(Path(path)), options)

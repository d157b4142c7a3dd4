"""`nmt export`: a run's model for another engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from nmt_cli.cli.console import Messages
from nmt_cli.errors import ConfigError, nearest
from nmt_cli.export.ctranslate2 import export_ctranslate2
from nmt_cli.runs.exported import ExportRecord, in_place_path
from nmt_cli.runs.folder import RunFolder

EXPORTERS: Mapping[str, Callable[[RunFolder, Path, str], ExportRecord]] = {"ctranslate2": export_ctranslate2}
"""Name of an engine -> what writes a model for it, from a run, into a folder, of a checkpoint."""


def run_export(run: Path, to: str, *, out: Path | None, checkpoint: str, in_place: bool) -> None:
    """Write the model of a checkpoint for another engine.

    Args:
        run: Run folder.
        to: Name of the engine.
        out: Folder for the export.
        checkpoint: Name or update number.
        in_place: Write it into the run folder, where `nmt translate --engine` finds it.

    Raises:
        ConfigError: The options do not fit, the model cannot be expressed, or something else is at `out`.
        RunError: The run or its checkpoint cannot be used.
    """
    if to not in EXPORTERS:
        raise ConfigError(f"--to: expected {' or '.join(EXPORTERS)}, but is {to!r}{nearest(to, EXPORTERS)}")
    if (out is None) != in_place:
        raise ConfigError("expected --out DIR or --in-place, one of the two: where the export is written")
    folder = RunFolder.open(run)
    path = out or in_place_path(folder)
    record = EXPORTERS[to](folder, path, checkpoint)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    Messages().info(
        f"{path}: {record.checkpoint} for {to}, {size / 1e6:.1f} MB; sentences and translations of up to "
        f"{record.max_positions:,} tokens"
    )

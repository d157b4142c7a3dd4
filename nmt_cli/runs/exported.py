"""The folder of an exported model: all that translating needs, without the run it was made from. No torch here.

export.json config.yaml tokenizer/, and beside them the files of the engine that the model was exported to
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nmt_cli.errors import ConfigError, RunError
from nmt_cli.runs.folder import TOKENIZER_FILES, RunFolder, write_atomically, write_folder_atomically

FORMAT_VERSION = 1
RECORD_FILE = "export.json"
OURS = frozenset((RECORD_FILE, "config.yaml", "tokenizer"))
CTRANSLATE2_FILES = frozenset(
    ("model.bin", "config.json", "source_vocabulary.json", "target_vocabulary.json", "shared_vocabulary.json")
)


@dataclass(frozen=True)
class ExportRecord:
    """What an exported model is: the content of `export.json`.

    Args:
        engine: The engine that reads it, `ctranslate2`.
        checkpoint: Folder of the checkpoint that it was made from.
        update: The checkpoint's update.
        sha256: Of the checkpoint's weights, by which an export is known to belong to it.
        max_positions: Longest source, and longest translation, in tokens with the end mark.
        source_vocabulary: Size of the source vocabulary.
        target_vocabulary: Size of the target vocabulary.
        versions: Of nmt and of the engine that wrote it.
    """

    engine: str
    checkpoint: str
    update: int
    sha256: str
    max_positions: int
    source_vocabulary: int
    target_vocabulary: int
    versions: dict[str, str]


def is_export(path: Path) -> bool:
    """Return whether the folder `path` is an exported model."""
    return (path / RECORD_FILE).is_file()


def read_record(path: Path) -> ExportRecord:
    """Return what the exported model in the folder `path` is.

    Raises:
        RunError: There is none, it is damaged, or a newer version of nmt made it.
    """
    if not is_export(path):
        what = f"there is no {RECORD_FILE} in it" if path.is_dir() else "it does not exist"
        raise RunError(f"{path}: expected a model as `nmt export` writes it, but {what}")
    raw = RunFolder(path).read_json(RECORD_FILE)
    version = raw.pop("format", None)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise RunError(f"{path}: made by a newer nmt (format {version}, this one reads up to {FORMAT_VERSION}); update nmt")
    try:
        return ExportRecord(**raw)
    except TypeError as error:
        raise RunError(f"{path / RECORD_FILE}: this file is damaged: {error}; export the model again") from None


def in_place_path(folder: RunFolder) -> Path:
    """Return where a run keeps its own export."""
    return folder.path / "export" / "ctranslate2"


def find_export(folder: RunFolder, checkpoint: str) -> Path:
    """Return the folder of a run's own export of a checkpoint.

    Raises:
        RunError: There is no such checkpoint, or no export of it; the message says how to make one.
    """
    path, wanted = in_place_path(folder), folder.checkpoint_path(checkpoint)
    command = f"`nmt export {folder.path} --to ctranslate2 --in-place --checkpoint {checkpoint}`"
    if not path.exists():
        raise RunError(f"{folder.path}: this run has no export to CTranslate2 yet; make one with {command}")
    record = read_record(path)
    if record.sha256 not in folder.index().checkpoints[wanted.name].sha256.values():
        raise RunError(
            f"{path}: expected an export of checkpoint {checkpoint} ({wanted.name}), but it is one of {record.checkpoint}; "
            f"renew it with {command}"
        )
    return path


def check_replaceable(path: Path) -> None:
    """Refuse to write an export where anything but an earlier one lies.

    Raises:
        ConfigError: With what is in the way.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path}: expected a new folder or an earlier export, but it is a file; choose another --out")
    names = {entry.name for entry in path.iterdir()} if path.exists() else set()
    foreign = names - OURS - CTRANSLATE2_FILES if RECORD_FILE in names else names
    if foreign:
        raise ConfigError(
            f"{path}: expected a new or empty folder or an earlier export, but it holds {', '.join(sorted(foreign)[:5])}, "
            "which `nmt export` did not write; choose another --out"
        )


def write_export(path: Path, folder: RunFolder, record: ExportRecord, write_model: Callable[[Path], None]) -> None:
    """Write an exported model, whole or not at all. An earlier one at `path` is replaced.

    Args:
        path: Folder of the export.
        folder: The run that it is made from: its config and its tokenizers are copied.
        record: What it is.
        write_model: Called with a folder to write the engine's files into.

    Raises:
        ConfigError: Something else is at `path`.
        NmtError: It cannot be written.
    """

    def write(temporary: Path) -> None:
        write_model(temporary)
        (temporary / "tokenizer").mkdir()
        copied = [Path("config.yaml"), *(Path("tokenizer", name) for name in TOKENIZER_FILES)]
        for name in copied:
            if (folder.path / name).exists():
                shutil.copyfile(folder.path / name, temporary / name)
        content = {"format": FORMAT_VERSION, **asdict(record)}
        write_atomically(temporary / RECORD_FILE, json.dumps(content, ensure_ascii=False, indent=2) + "\n")

    check_replaceable(path)
    write_folder_atomically(path.resolve(), write)  # a link stays, what it points to is replaced


def import_ctranslate2() -> Any:
    """Return the package CTranslate2.

    Raises:
        ConfigError: It is not installed; the message says how to install it.
    """
    try:
        import ctranslate2
    except ImportError as error:
        raise ConfigError(
            f"this needs CTranslate2, which cannot be imported ({error}); install it with pip install 'nmt-cli[ctranslate2]'"
        ) from None
    return ctranslate2

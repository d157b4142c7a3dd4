"""The run folder: what a training leaves behind, written so that every file appears whole or not at all. No torch here.

config.yaml requested.yaml manifest.json data/ tokenizer/ checkpoints/ metrics.jsonl curves.png reports/ train.log
.store/ only where nothing can be written beside the folder: training text as ids, of this run and of those before it
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nmt_cli.config import Config
from nmt_cli.config_file import dump_config, dump_yaml, parse_config, parse_tree
from nmt_cli.errors import ConfigError, DataError, RunError, disk_errors, nearest
from nmt_cli.text.parallel import Pair, read_lines
from nmt_cli.text.tokenizers import Tokenizer, load_tokenizer, tokenizer_files

FORMAT_VERSION = 1
FILES = ("requested.yaml", "config.yaml", "metrics.jsonl", "curves.png", "train.log", "manifest.json")
FOLDERS = ("data", "tokenizer", "checkpoints", "reports", "export")
STORE = ".store"
"""Made before the run and kept when the run is removed: the next one finds its text there."""
TOKENIZER_FILES = tuple(f"{stem}.{suffix}" for stem in ("source", "target", "shared") for suffix in ("json", "vocab", "model"))


@dataclass(frozen=True)
class CheckpointRecord:
    """One checkpoint in `index.json`: its folder's files with their SHA-256, and the validation scores when it was saved."""

    update: int
    scores: dict[str, float]
    sha256: dict[str, str]


@dataclass(frozen=True)
class CheckpointIndex:
    """Names such as `best` and `last` -> checkpoint folder, and what is known of each folder."""

    names: dict[str, str] = field(default_factory=dict)
    checkpoints: dict[str, CheckpointRecord] = field(default_factory=dict)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file that appears whole or not at all: temporary sibling, fsync, rename.

    Raises:
        ResourceError: The disk is full; whatever was at `path` is untouched.
        RunError: It cannot be written for another reason.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, 0o666 & ~current_umask())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def write_folder_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Write a folder that appears whole or not at all: temporary sibling, fsync, rename. What was at `path` is replaced.

    Args:
        path: The folder.
        write: Called with a temporary folder to write files and folders into.

    Raises:
        ResourceError: The disk is full; whatever was at `path` is untouched.
        RunError: It cannot be written for another reason.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        try:
            write(temporary)
            for written in (*sorted(temporary.rglob("*")), temporary):
                _fsync(written)
            os.chmod(temporary, 0o777 & ~current_umask())
            replaced = Path(f"{temporary}.old")
            if path.exists():
                os.replace(path, replaced)
            os.replace(temporary, path)
            shutil.rmtree(replaced, ignore_errors=True)
            _fsync(path.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Callable[[str], None]]:
    """Give a function that appends text to a file that appears under its name when the block ends well.

    Raises:
        ResourceError: The disk is full; whatever was at `path` is untouched.
        RunError: It cannot be written for another reason.
    """
    target = path.resolve()  # a link stays, what it points to is replaced
    with disk_errors(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:

            def write(text: str) -> None:
                with disk_errors(path):
                    stream.write(text)

            yield write
            with disk_errors(path):
                stream.flush()
                os.fsync(stream.fileno())
        with disk_errors(path):
            os.chmod(part, 0o666 & ~current_umask())
            os.replace(part, target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


class RunFolder:
    """Reads and writes the files of one run.

    Args:
        path: The folder, existing or not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    # -- opening -------------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Return the folder of an existing run.

        Raises:
            RunError: It is not a run folder, or a newer version of nmt made it.
        """
        folder = cls(path)
        if not folder.exists:
            what = "is not a run folder: it has no manifest.json" if path.is_dir() else "does not exist"
            others = [entry.name for entry in path.parent.glob("*") if (entry / "manifest.json").is_file()] if path.name else []
            raise RunError(f"{path}: expected a run folder as `nmt train` makes it, but it {what}{nearest(path.name, others)}")
        version = folder.manifest().get("format")
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise RunError(f"{path}: made by a newer nmt (format {version}, this one reads up to {FORMAT_VERSION}); update nmt")
        return folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for writing.

        Raises:
            RunError: Another process trains in this folder.
        """
        was_there = self.path.exists()
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = open(self.path / ".lock", "w")  # noqa: SIM115 - closed below
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(f"{self.path}: another `nmt train` is at work in this folder; wait for it or stop it") from None
            except OSError as error:
                raise RunError(f"{self.path}: this file system cannot lock a run folder: {error.strerror}") from None
            try:
                yield
            finally:
                if not self.exists:  # nothing came of it: leave no trace
                    with contextlib.suppress(OSError):
                        (self.path / ".lock").unlink()
                        if not was_there:
                            self.path.rmdir()

    @property
    def exists(self) -> bool:
        """Whether this is a run folder: the manifest is the first file that a run writes and the last that is removed."""
        return (self.path / "manifest.json").is_file()

    def refuse_foreign(self) -> None:
        """Raise a `RunError` where there is no run, but files or folders with our names: they are somebody else's."""
        found = [name for name in (*FILES, *FOLDERS) if os.path.lexists(self.path / name)]
        if found and not self.exists:
            raise RunError(
                f"{self.path}: expected a new or empty folder or an earlier run, but it holds {', '.join(found)} and no "
                "manifest.json, so that these are not ours; choose another --run-dir"
            )

    def clear(self) -> None:
        """Remove what we wrote, the manifest last; files of others stay, and so does `STORE`."""
        with disk_errors(self.path):
            for folder in FOLDERS:
                if (self.path / folder).is_symlink():  # what it points to is not ours
                    (self.path / folder).unlink()
            for path in self._ours():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            for folder in FOLDERS:
                with contextlib.suppress(OSError):  # somebody else's files are in it, or it is not there
                    (self.path / folder).rmdir()

    def _ours(self) -> list[Path]:
        """Return the paths of everything that we write, the manifest last."""
        try:
            splits = list(self.manifest()["corpora"])
        except (RunError, KeyError):  # damaged: what is left behind is written over
            splits = []
        paths = [self.path / "tokenizer" / name for name in TOKENIZER_FILES]
        paths += [self.path / "checkpoints" / "index.json", *self.checkpoint_folders()]
        paths += (self.path / "checkpoints").glob(".update-*")
        paths += (self.path / "export").glob(".ctranslate2.*")
        paths += (record.parent for record in (self.path / "export").glob("ctranslate2/export.json"))
        for split in splits:
            paths += [self.path / "data" / f"{split}.{side}.txt" for side in ("source", "target")]
            paths += [self.path / "reports" / f"{split}.{suffix}" for suffix in ("json", "md", "hypotheses.txt")]
        return [*paths, *(self.path / name for name in FILES)]

    # -- config, manifest, tokenizers, data ----------------------------------------------------------------------------

    def read_text(self, name: str) -> str:
        """Return the text of a file in the folder."""
        try:
            return "\n".join(read_lines(self.path / name))
        except DataError as error:
            raise RunError(f"{error}; the run folder is damaged") from None

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the object that a JSON file in the folder holds."""
        try:
            value = json.loads(self.read_text(name))
        except json.JSONDecodeError as error:
            raise RunError(f"{self.path / name}:{error.lineno}: expected JSON, but it is damaged: {error.msg}") from None
        if not isinstance(value, dict):
            raise RunError(f"{self.path / name}: expected a JSON object, but it is damaged")
        return value

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file."""
        write_atomically(self.path / name, json.dumps(value, ensure_ascii=False, indent=2) + "\n")

    def config(self) -> Config:
        """Return the resolved config."""
        try:
            return parse_config(self.read_text("config.yaml"), str(self.path / "config.yaml"))
        except ConfigError as error:
            raise RunError(f"{error}; the run folder is damaged, or made by another version") from None

    def requested(self) -> dict[str, Any]:
        """Return what the user asked for."""
        tree = parse_tree(self.read_text("requested.yaml"), str(self.path / "requested.yaml"))
        if "data" not in tree:
            raise RunError(f"{self.path / 'requested.yaml'}: expected the config that was asked for, but it is damaged")
        return tree

    def write_config(self, config: Config, requested: dict[str, Any]) -> None:
        """Write both config files, `requested.yaml` last."""
        write_atomically(self.path / "config.yaml", dump_config(config))
        write_atomically(self.path / "requested.yaml", dump_yaml(requested))

    def manifest(self) -> dict[str, Any]:
        """Return the manifest."""
        return self.read_json("manifest.json")

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest, with the format version."""
        self.write_json("manifest.json", {"format": FORMAT_VERSION, **manifest})

    def write_tokenizers(self, source: Tokenizer, target: Tokenizer) -> None:
        """Write both tokenizers, or the shared one once."""
        named = {"shared": source} if source is target else {"source": source, "target": target}
        for stem, tokenizer in named.items():
            for name, text in tokenizer_files(tokenizer, stem).items():
                write_atomically(self.path / "tokenizer" / name, text)

    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Return the source and the target tokenizer."""
        folder = self.path / "tokenizer"
        try:
            if (folder / "shared.json").exists():
                shared = load_tokenizer(folder, "shared")
                return shared, shared
            return load_tokenizer(folder, "source"), load_tokenizer(folder, "target")
        except DataError as error:
            raise RunError(f"{error}; the run folder is damaged") from None

    def write_split(self, split: str, pairs: list[Pair]) -> None:
        """Keep a copy of a validation or test set."""
        write_atomically(self.path / "data" / f"{split}.source.txt", "".join(f"{pair.source}\n" for pair in pairs))
        write_atomically(self.path / "data" / f"{split}.target.txt", "".join(f"{pair.target}\n" for pair in pairs))

    def splits(self) -> list[str]:
        """Return the names of the sets kept in the folder."""
        return sorted(path.name.removesuffix(".source.txt") for path in (self.path / "data").glob("*.source.txt"))

    def split(self, name: str) -> tuple[list[str], list[str]]:
        """Return the source and target lines of a set.

        Raises:
            RunError: There is no such set.
        """
        known = self.splits()
        if name not in known:
            raise RunError(f"{self.path}: there is no split {name!r}; this run has {', '.join(known) or 'none'}")
        sides = [self.read_text(f"data/{name}.{side}.txt").split("\n") for side in ("source", "target")]
        if len(sides[0]) != len(sides[1]):
            raise RunError(f"{self.path}/data: the two sides of {name} have {len(sides[0])} and {len(sides[1])} lines; damaged")
        return sides[0], sides[1]

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def index(self) -> CheckpointIndex:
        """Return the index of checkpoints; empty before the first one."""
        if not (self.path / "checkpoints" / "index.json").exists():
            return CheckpointIndex()
        raw = self.read_json("checkpoints/index.json")
        try:
            records = {name: CheckpointRecord(**record) for name, record in raw["checkpoints"].items()}
            return CheckpointIndex(dict(raw["names"]), records)
        except (KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{self.path}/checkpoints/index.json: this file is damaged: {error}") from None

    def write_index(self, index: CheckpointIndex) -> None:
        """Write the index of checkpoints."""
        self.write_json("checkpoints/index.json", asdict(index))

    def checkpoint_path(self, name: str) -> Path:
        """Return the folder of a checkpoint by a name of the index or an update's number.

        Raises:
            RunError: There is no such checkpoint.
        """
        index = self.index()
        folder = index.names.get(name)
        if folder is None and name.isascii() and name.isdigit():
            folder = f"update-{int(name):08d}"
        if folder is None or folder not in index.checkpoints:
            known = [*sorted(index.names), *(str(record.update) for record in index.checkpoints.values())]
            raise RunError(f"{self.path}: there is no checkpoint {name!r}; this run has {', '.join(known) or 'none yet'}")
        return self.path / "checkpoints" / folder

    def checkpoint_identity(self, name: str) -> dict[str, str]:
        """Return the SHA-256 of each file of a checkpoint, by a name of the index or an update's number."""
        return self.index().checkpoints[self.checkpoint_path(name).name].sha256

    def verified(self, folder: Path, file: str) -> Path:
        """Return the path of a checkpoint's file after comparing its SHA-256 with the index.

        Raises:
            RunError: The file is missing or damaged; the message names other checkpoints to try.
        """
        path = folder / file
        index = self.index()
        expected = index.checkpoints[folder.name].sha256.get(file)
        if not path.is_file() or file_sha256(path) != expected:
            others = [str(record.update) for name, record in index.checkpoints.items() if name != folder.name]
            hint = f"checkpoint {others[-1]} may still be whole" if others else "there is no other checkpoint in this run"
            raise RunError(f"{path}: this checkpoint file is missing, cut short or changed since it was written; {hint}")
        return path

    def checkpoint_folders(self) -> list[Path]:
        """Return the folders of all checkpoints on disk, in the order of their updates."""
        return sorted((self.path / "checkpoints").glob("update-*"))

    def write_checkpoint(
        self,
        name: str,
        update: int,
        write: Callable[[Path], None],
        scores: dict[str, float],
        names: Mapping[str, str] | None = None,
    ) -> None:
        """Write a checkpoint folder as a whole, and enter it in the index in one step with names that move to it.

        Args:
            name: The folder's name.
            update: The update's number.
            write: Called with a temporary folder to write files into.
            scores: Validation scores to note in the index.
            names: Names such as `last` -> folder.
        """
        digests: dict[str, str] = {}

        def write_all(temporary: Path) -> None:
            write(temporary)
            digests.update({path.name: file_sha256(path) for path in sorted(temporary.iterdir())})

        # one may be there already: of a run that was stopped between this checkpoint and its entry in the index
        write_folder_atomically(self.path / "checkpoints" / name, write_all)
        index = self.index()
        record = CheckpointRecord(update, scores, digests)
        self.write_index(CheckpointIndex({**index.names, **(names or {})}, {**index.checkpoints, name: record}))

    def name_checkpoints(self, names: dict[str, str], *, keep: set[str]) -> None:
        """Give names to checkpoint folders and remove those not in `keep`, from the index first.

        Args:
            names: Name such as `best` -> folder.
            keep: Folders to keep.
        """
        index = self.index()
        kept = {folder: record for folder, record in index.checkpoints.items() if folder in keep}
        all_names = {name: folder for name, folder in {**index.names, **names}.items() if folder in kept}
        self.write_index(CheckpointIndex(all_names, kept))
        for path in self.checkpoint_folders():
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)
        for leftover in (self.path / "checkpoints").glob(".update-*"):
            shutil.rmtree(leftover, ignore_errors=True)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def current_umask() -> int:
    """Return the permissions that new files of this process do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

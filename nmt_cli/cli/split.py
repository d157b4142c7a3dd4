"""`nmt split`: one's own pairs into training, validation and test files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nmt_cli.cli.console import Messages
from nmt_cli.errors import ConfigError
from nmt_cli.runs.folder import write_atomically
from nmt_cli.text.parallel import Pair, read_pairs
from nmt_cli.text.splitting import split_pairs


def run_split(files: Sequence[str], out: Path, sizes: Mapping[str, int], *, seed: int) -> None:
    """Divide a .tsv file, or two text files, into files of the same kind in the folder `out`.

    Raises:
        ConfigError: More than two files are given, or a file that would be written exists.
        DataError: The files cannot be read, or hold too few pairs.
    """
    if len(files) > 2:
        raise ConfigError(f"expected one .tsv file, or a source and a target file, but got {len(files)} files")
    sets = split_pairs(read_pairs([files]), {name: size for name, size in sizes.items() if size}, seed=seed)
    contents: dict[Path, str] = {}
    for name, pairs in sets.items():
        contents.update(_files(out / name, pairs, files))
    existing = [str(path) for path in contents if path.exists()]
    if existing:
        raise ConfigError(f"{existing[0]}: exists already; remove it, or choose another --out")
    for path, content in contents.items():
        write_atomically(path, content)
    found = ", ".join(f"{name} {len(pairs):,}" for name, pairs in sets.items())
    Messages().info(f"{out}: {found} pairs; no source sentence is in two of them")


def _files(stem: Path, pairs: Sequence[Pair], files: Sequence[str]) -> dict[Path, str]:
    """Return path -> content of one set: a .tsv, or two files with the endings of the given ones (`.en`, `.fr`)."""
    if len(files) == 1:
        return {Path(f"{stem}.tsv"): "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)}
    source, target = (Path(file.removesuffix(".gz")).suffix for file in files)
    if source == target or not (source and target):
        source, target = ".source", ".target"
    return {
        Path(f"{stem}{source}"): "".join(f"{pair.source}\n" for pair in pairs),
        Path(f"{stem}{target}"): "".join(f"{pair.target}\n" for pair in pairs),
    }

"""`nmt fetch`: a named corpus into `data/corpora/NAME/`."""

from __future__ import annotations

from pathlib import Path

from nmt_cli.cli.console import Messages
from nmt_cli.errors import ConfigError
from nmt_cli.runs.folder import write_atomically
from nmt_cli.text.fetch import find_corpus, read_corpus_files


def run_fetch(name: str, source: Path | None, *, into: Path = Path("data/corpora")) -> None:
    """Copy a corpus from `source` into `into`/`name`.

    Raises:
        ConfigError: The name is unknown, or no source is given.
        DataError: A file is missing or damaged; nothing is written then.
    """
    corpus = find_corpus(name)
    if source is None:
        raise ConfigError(f"nmt fetch {name}: needs --from DIR, the folder where the corpus lies")
    contents = read_corpus_files(name, source)
    for file, content in contents.items():
        write_atomically(into / name / file, content)
    messages = Messages()
    messages.info(f"{into / name}: {len(contents)} files, {sum(map(len, contents.values())):,} bytes, all as expected")
    messages.info(corpus.about)

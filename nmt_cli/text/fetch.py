"""Named corpora: which files they have, and how they come into `data/corpora/`, each one checked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nmt_cli.errors import ConfigError, DataError, nearest


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus that `nmt fetch` knows.

    Args:
        about: What it is, and its licence.
        files: File name -> SHA-256.
    """

    about: str
    files: Mapping[str, str]


CORPORA: Mapping[str, NamedCorpus] = {
    "multi30k": NamedCorpus(
        "Multi30k task 1, English-French captions (29,000 pairs; Elliott et al. 2016, 2017). For non-commercial research.",
        {
            "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
            "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
            "test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
            "test_2017_flickr.fr.gz": "3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496",
            "test_2017_mscoco.en.gz": "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58",
            "test_2017_mscoco.fr.gz": "754f3072ba9f124569ba5258b32730fc1d214bbf8e0c6dfb2b74401676220db0",
            "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
            "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
            "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
            "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
        },
    ),
    "tatoeba-600": NamedCorpus(
        "647 short English-French pairs from tatoeba.org by way of manythings.org. CC BY 2.0 FR.",
        {
            "eng-fra.tsv": "fe0ec0328809df578ba2b1b9ba8595ec22cf6ba12c1aec8c81274f93468a66d4",
        },
    ),
    "tatoeba-5000": NamedCorpus(
        "5,000 short English-French pairs with attribution, from tatoeba.org by way of manythings.org. CC BY 2.0 FR.",
        {
            "eng-fra.tsv.gz": "43a8d4e088ad01915d6ea64f4311e221211609a9c7e6bca45b2196e9d1f929b9",
        },
    ),
}


def find_corpus(name: str) -> NamedCorpus:
    """Return a corpus by name.

    Raises:
        ConfigError: It is unknown.
    """
    if name not in CORPORA:
        raise ConfigError(f"unknown corpus {name!r}{nearest(name, CORPORA) or '.'} Known: {', '.join(CORPORA)}")
    return CORPORA[name]


def read_corpus_files(name: str, source: Path) -> dict[str, bytes]:
    """Return file name -> content of a corpus that lies in `source`, or in a folder of its name there.

    Raises:
        ConfigError: The name is unknown, or the folder does not hold it.
        DataError: A file is missing or differs from what its SHA-256 promises.
    """
    corpus = find_corpus(name)
    folder = source / name if (source / name).is_dir() else source
    if not folder.is_dir():
        raise ConfigError(f"--from {source}: expected a folder that holds {name}, but there is none")
    contents = {}
    for file, expected in corpus.files.items():
        path = folder / file
        try:
            contents[file] = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path}: cannot read this file of {name}: {error.strerror}") from None
        found = hashlib.sha256(contents[file]).hexdigest()
        if found != expected:
            raise DataError(
                f"{path}: expected the file with SHA-256 {expected[:12]}…, but this one has {found[:12]}…; get it again"
            )
    return contents

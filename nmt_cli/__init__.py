"""nmt: train, run, score and explain neural machine translation models from the command line.

From Python: `from nmt_cli import Translator, load_run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Translator", "__version__", "load_run"]

if TYPE_CHECKING:
    from nmt_cli.cli.loading import load_run
    from nmt_cli.decoding.translator import Translator


def __getattr__(name: str) -> object:
    """Import the public names when they are asked for, so that `nmt --help` need not wait for torch."""
    if name == "load_run":
        from nmt_cli.cli.loading import load_run

        return load_run
    if name == "Translator":
        from nmt_cli.decoding.translator import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

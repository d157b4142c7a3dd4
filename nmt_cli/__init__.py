"""nmt: train, run, score and explain neural machine translation models from the command line."""

__version__ = "0.1.0"

"""Decoding: from source lines to translations."""

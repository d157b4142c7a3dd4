"""Evaluation: scores with their signatures, and reports. Strings and numbers only."""

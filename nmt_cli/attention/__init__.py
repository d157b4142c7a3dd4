"""Attention: masks, scores, multi-head attention, positions."""

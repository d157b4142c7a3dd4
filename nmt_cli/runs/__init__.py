"""Run folders: what a training leaves behind, and how a model is built from it."""

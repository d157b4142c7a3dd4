"""Text: aligned pairs, tokenizers, vocabularies, batches."""

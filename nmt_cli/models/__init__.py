"""Models: one interface, two architectures."""

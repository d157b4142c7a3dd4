"""Training: the loop, its loss, its schedules, its checkpoints."""

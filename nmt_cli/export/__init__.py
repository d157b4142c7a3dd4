"""Export: from a run to a model that another engine translates with."""

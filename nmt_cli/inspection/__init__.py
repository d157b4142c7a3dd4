"""Inspection: pictures of what a run did."""

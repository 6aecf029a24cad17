"""Passes over the graph, one in each file. ``compile/pipelines.py`` has the order in which they run."""

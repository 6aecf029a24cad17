"""Tune: searches for the settings with which a model is fastest, or quickest to answer, or least hungry, and fits."""

"""Runs a schedule: on the host, and tile by tile as the reference."""

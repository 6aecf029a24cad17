"""Importers: a program of another framework becomes a graph. One room each; none knows another."""

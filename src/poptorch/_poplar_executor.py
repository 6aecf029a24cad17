"""The vendor's private name for the module that holds the wrapper of a model."""

from .executor import PoplarExecutor

__all__ = ["PoplarExecutor"]

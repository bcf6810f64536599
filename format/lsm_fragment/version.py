"""Holds the version of the product, which writers note in fragments."""

__version__ = "0.1.0"

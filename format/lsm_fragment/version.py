"""The version of the product, which writers record in fragments."""

__version__ = "0.1.0"

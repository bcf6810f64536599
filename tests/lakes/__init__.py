"""Copies of tables that other engines read."""

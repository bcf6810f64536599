"""Conditions on rows: read from SQL, evaluated on arrays, and held against statistics."""

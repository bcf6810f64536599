"""Conditions of other engines as ones of ours, so that a scan leaves out rows which they don't want."""

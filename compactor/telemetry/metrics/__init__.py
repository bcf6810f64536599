"""Prometheus metrics of tables and compactions.

`catalog` lists every metric and `mapping` turns events into changes; both are pure. `recorder` listens to
worker and log, `registry` holds the values, `server` serves them to scrapers, beside the probes of `health`,
and `publish` writes them to a file or pushes them when a batch command ends.
"""

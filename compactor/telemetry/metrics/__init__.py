"""Prometheus metrics of tables and compactions: `catalog` and `mapping` are pure, the others do I/O."""

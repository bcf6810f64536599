"""Figures of tables and compactions for Prometheus: `catalog` and `mapping` are pure, the others do I/O."""

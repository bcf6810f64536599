"""LSM compaction worker for columnar fragments on object storage."""

__version__ = "0.1.0"

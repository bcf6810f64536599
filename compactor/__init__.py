"""LSM compaction worker for columnar fragments on object storage."""

from format import __version__ as __version__

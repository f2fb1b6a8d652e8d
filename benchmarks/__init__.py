"""Scripts that measure; each writes a record with commit, hardware and seeds."""

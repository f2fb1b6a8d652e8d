"""Scripts that measure; each writes a record with commit, hardware, versions and seeds into benchmarks/results/."""

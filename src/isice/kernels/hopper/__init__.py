"""The Newton–Schulz kernel for Hopper GPUs in Gluon, with a TMA producer warp and asynchronous MMA."""

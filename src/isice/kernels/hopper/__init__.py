"""The Newton–Schulz kernel for Hopper GPUs in Gluon: TMA producer warp, asynchronous MMA."""

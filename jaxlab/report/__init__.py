"""One page about everything that was run: claims, experiments and benchmarks."""

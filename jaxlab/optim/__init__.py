"""Optimization methods, one module per paper, on the protocol of ``jaxlab.core``."""

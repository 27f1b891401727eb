"""Samplers and estimators of unnormalised densities, on the protocol of ``jaxlab.core``."""

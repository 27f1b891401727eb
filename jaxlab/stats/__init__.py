"""Shared mathematics: confidence intervals and fitted exponents."""

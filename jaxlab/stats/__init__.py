"""Shared mathematics: intervals, fitted exponents, importance weights and resampling."""

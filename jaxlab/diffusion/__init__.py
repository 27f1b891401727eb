"""Diffusion models whose denoisers are exact, or learned on the spot, and samplers for them."""

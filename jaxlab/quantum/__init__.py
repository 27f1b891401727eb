"""Open quantum systems under piecewise constant pulses, differentiable and batched by ``vmap``."""

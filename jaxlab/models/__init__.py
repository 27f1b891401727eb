"""Language models as pure functions of their parameters, with real weights."""

"""Methods for language models, as pure functions of their parameters."""

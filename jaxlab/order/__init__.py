"""``jaxlab order``: in which order to train on one's own files, told before any training."""

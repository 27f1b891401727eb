"""Methods and theory of learning: what can be learned, from how many samples, by which method."""

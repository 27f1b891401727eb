"""``jaxlab memorize``: what the noise levels of one's own data say about copying."""

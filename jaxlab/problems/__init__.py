"""Instances with their constants: graphs, consensus problems, quadratics, regression."""

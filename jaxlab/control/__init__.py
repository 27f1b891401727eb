"""Control of dynamic systems: linear-quadratic regulators and bounds on how they track."""

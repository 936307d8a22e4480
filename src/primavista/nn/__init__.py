"""Building blocks of training: batch renormalisation, freezing, gradient descent, guards."""

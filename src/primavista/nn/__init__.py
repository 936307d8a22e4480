"""Parts that train a representation: batch renormalisation, freezing, gradient descent, guards."""

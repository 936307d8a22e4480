"""What trains a representation: batch renormalisation, freezing, gradient descent, guards."""

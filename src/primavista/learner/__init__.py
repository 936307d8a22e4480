"""The learner: teaching, recognising, evaluating, and its file."""

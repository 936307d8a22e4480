"""Images, videos and cameras: what a learner sees."""

"""Object videos that the package draws itself, with the structure of CORe50."""

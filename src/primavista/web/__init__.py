"""The page that learns without a server, as files for any web host or as one file."""

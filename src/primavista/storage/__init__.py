"""Files: atomic writes, safetensors, manifests, locks, checks of what is loaded."""

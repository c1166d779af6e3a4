"""Ray: many worker processes, on this machine or in a cluster."""

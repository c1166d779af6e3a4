"""Ray: many processes answer, on this machine or on all of a cluster."""

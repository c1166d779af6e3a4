"""Human labels of answers: samples to label, files of labels, and the columns they become."""

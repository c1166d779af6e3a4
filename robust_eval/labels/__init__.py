"""What people say of answers: which answers are drawn for them, and the labels that they give."""

"""What of a reply is its answer: reasoning, markup and politeness are taken off before anything is graded."""

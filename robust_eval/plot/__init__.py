"""One figure, one function: each draws into the axes that it is given, and returns them."""

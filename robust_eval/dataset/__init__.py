"""Questions of built-in sets, published sets and tables of the user."""

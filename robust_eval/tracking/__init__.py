"""Records of a run: its result, the files in its folder, its entry in MLflow."""

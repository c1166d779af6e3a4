"""What a run leaves: its result, the files in its folder, its entry in MLflow."""

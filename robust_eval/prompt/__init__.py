"""Questions as prompts: templates and exemplars are data, rendered to messages or to plain text."""

"""The shape of project.yml: its models, the JSON Schema, and what each key means."""

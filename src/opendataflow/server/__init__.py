"""The HTTP server: it takes in items of streams. It never imports a project's code."""

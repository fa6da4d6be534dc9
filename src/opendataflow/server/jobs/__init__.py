"""Jobs and pipelines, and what people do to them."""

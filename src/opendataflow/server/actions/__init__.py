"""Actions: what people do to the system, planned first, over the API and on the pages."""

"""Pipelines on Spark. Nothing outside this package imports pyspark, and nothing here knows of claims or stores."""

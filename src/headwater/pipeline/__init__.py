"""Stream processing on Spark, as functions from DataFrame to DataFrame."""

"""Databases as streams: snapshot, stream, schema; one module per database."""

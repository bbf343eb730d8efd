"""The `headwater` command: calls only what users can call."""

"""The pipeline's promises in figures: one file per bar, the peer in the same run."""

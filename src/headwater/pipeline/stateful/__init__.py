"""The vectorised keyed-state operator that every custom operator is built on."""

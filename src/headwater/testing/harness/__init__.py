"""The parts of the stream harness; its users need only `headwater.testing.streams`."""

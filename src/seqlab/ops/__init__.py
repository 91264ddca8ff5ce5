"""The maths: pure functions, no parameters."""

"""Answers that come from other harnesses, and runs that go to them."""

"""The REST interface: application, admission and errors."""

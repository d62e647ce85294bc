"""The REST interface, one module per resource. Each function calls one operation of the service."""

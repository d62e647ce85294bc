"""Start programs under the connector."""

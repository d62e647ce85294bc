"""Plans of reorganizations: what is read, moved and written, as pure values."""

"""The server: jobs, REST, and the operations that the commands share with it."""

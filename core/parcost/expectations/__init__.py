"""The claims of `expect` blocks, compared with the figures of a result."""

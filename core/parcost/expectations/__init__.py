"""The claims of `expect` blocks, judged by the figures of a result."""

"""How a model is spread over devices: tensor, pipeline and data parallelism."""

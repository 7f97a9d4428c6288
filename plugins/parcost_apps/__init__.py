"""Programs around the predictions: editor server, live page, executors, new plugins."""

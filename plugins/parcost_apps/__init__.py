"""Programs around the predictions: editor, live page, diff, timeline, executors, new plugins."""

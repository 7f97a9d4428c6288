"""Programs around the predictions: editor, live page, diff, timeline, docs, new plugins."""

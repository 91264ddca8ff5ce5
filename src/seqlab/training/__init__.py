"""What changes weights. Batches and callbacks come from a workflow; nothing here knows text."""
